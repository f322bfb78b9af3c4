//! The socket: who connects, what they send, what they are told. Nothing here waits.

use super::orders::{self, Answer, Request, Said};
use crate::kernel::check;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// Most connections at a time. One more takes the place of the oldest that has asked for nothing; where all have, it is told so.
const MOST_CLIENTS: usize = 64;
/// Most descriptors that may wait for the end of their line.
const MOST_DESCRIPTORS: usize = 64;
/// A client that does not read this much is cut off.
const LONGEST_OUTPUT: usize = 8 << 20;
/// Reads per client and turn: a sender that never stops must not keep us from our work.
const READS: usize = 64;
/// Descriptors of one message that we have room for; more are refused by the kernel's own limit (SCM_MAX_FD is 253).
const ROOM: usize = 256;

/// A request with where it came from.
pub(crate) struct Received {
    pub(crate) client: u64,
    pub(crate) request: Request,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// What happened since the last turn.
#[derive(Default)]
pub(crate) struct News {
    pub(crate) requests: Vec<Received>,
    /// Connections that ended.
    pub(crate) gone: Vec<u64>,
}

/// The socket and its connections.
pub(crate) struct Control {
    listener: UnixListener,
    clients: Vec<Client>,
    next: u64,
}

struct Client {
    number: u64,
    stream: UnixStream,
    input: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    output: Vec<u8>,
    /// It has given an order.
    asked: bool,
    gone: bool,
}

impl Control {
    pub(crate) fn new(listener: UnixListener) -> Self {
        Self {
            listener,
            clients: Vec::new(),
            next: 1,
        }
    }

    /// Takes in what is there and sends what waits.
    pub(crate) fn turn(&mut self) -> News {
        self.accept();
        let mut news = News::default();
        for client in &mut self.clients {
            client.read(&mut news.requests);
            client.write();
        }
        news.gone.extend(
            self.clients
                .iter()
                .filter(|client| client.gone)
                .map(|client| client.number),
        );
        self.clients.retain(|client| !client.gone);
        news
    }

    pub(crate) fn answer(&mut self, client: u64, id: u64, said: Said) {
        if let Some(client) = self.clients.iter_mut().find(|known| known.number == client) {
            client.say(&Answer { id, said });
            client.write();
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A connection that we cannot judge or serve is closed by dropping it.
            if !is_ours(&stream) || stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut client = Client {
                number: self.next,
                stream,
                input: Vec::new(),
                descriptors: VecDeque::new(),
                output: Vec::new(),
                asked: false,
                gone: false,
            };
            self.next += 1;
            // It may have sent its first order already.
            let there = self.clients.iter().filter(|known| !known.gone).count();
            if there >= MOST_CLIENTS {
                match self.clients.iter_mut().find(|known| !known.gone && !known.asked) {
                    Some(silent) => silent.refuse("it asked for nothing, and others wait".to_owned()),
                    None => {
                        client.refuse(format!(
                            "{MOST_CLIENTS} others talk to the experiment at the moment"
                        ));
                        continue;
                    }
                }
            }
            self.clients.push(client);
        }
    }
}

/// Is the other end the user who started the run? The kernel tells user ids as they are in *our* user namespace: there the
/// caller's own is ours (0, whoever that is outside), and everybody else's, root's too, is the overflow id
/// (user_namespaces(7), "Unmapped user and group IDs").
fn is_ours(stream: &UnixStream) -> bool {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its length are live; geteuid cannot fail.
    unsafe {
        check(libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        ))
        .is_ok()
            && peer.uid == libc::geteuid()
    }
}

impl Client {
    fn say(&mut self, answer: &Answer) {
        let Ok(line) = serde_json::to_vec(answer) else {
            return;
        };
        self.output.extend(line);
        self.output.push(b'\n');
        self.gone |= self.output.len() > LONGEST_OUTPUT;
    }

    fn refuse(&mut self, why: String) {
        self.say(&Answer {
            id: 0,
            said: Said::Error(why),
        });
        self.write();
        self.gone = true;
    }

    fn write(&mut self) {
        while !self.output.is_empty() && !self.gone {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    fn read(&mut self, requests: &mut Vec<Received>) {
        for _ in 0..READS {
            let mut bytes = [0u8; 16 * 1024];
            match receive(self.stream.as_raw_fd(), &mut bytes, &mut self.descriptors) {
                Ok(0) => self.gone = true,
                Ok(count) => self.input.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
            self.lines(requests);
            if self.gone {
                return;
            }
        }
    }

    fn lines(&mut self, requests: &mut Vec<Received>) {
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            match orders::parse(&line[..end]) {
                Ok(request) => match self.with_descriptors(request) {
                    Some(received) => {
                        self.asked = true;
                        requests.push(received);
                    }
                    None => return self.refuse("the descriptors of a command are missing".to_owned()),
                },
                Err(why) => return self.refuse(why),
            }
        }
        if self.input.len() >= orders::LONGEST_LINE {
            self.refuse(format!("a request has at most {} bytes", orders::LONGEST_LINE));
        } else if self.descriptors.len() > MOST_DESCRIPTORS {
            self.refuse("descriptors without a request".to_owned());
        }
    }

    fn with_descriptors(&mut self, request: Request) -> Option<Received> {
        let count = match &request.order {
            orders::Order::Exec(exec) => exec.descriptors(),
            _ => 0,
        };
        if self.descriptors.len() < count {
            return None;
        }
        Some(Received {
            client: self.number,
            request,
            descriptors: self.descriptors.drain(..count).collect(),
        })
    }
}

/// `recvmsg` with the descriptors that came along (SCM_RIGHTS, unix(7)); these are ours from here on.
fn receive(socket: i32, bytes: &mut [u8], descriptors: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    // u64 for the alignment of cmsghdr.
    let mut room = [0u64; (ROOM * size_of::<i32>() + 64) / 8];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zero is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&room) as _;
    // SAFETY: the message's buffers live for the call and have the stated lengths.
    let count = unsafe {
        libc::recvmsg(
            socket,
            &raw mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the control buffer up to msg_controllen; the macros stay within it, and each descriptor
    // in it is new and owned by nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<i32>();
                for index in 0..length / size_of::<i32>() {
                    descriptors.push_back(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("more descriptors than there is room for"));
    }
    Ok(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn pair(name: &str) -> (Control, UnixStream) {
        let path = std::env::temp_dir().join(format!("timebound-control-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let stream = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (Control::new(listener), stream)
    }

    #[test]
    fn a_request_in_pieces_is_one_request() {
        let (mut control, mut stream) = pair("pieces");
        for piece in [
            r#"{"version":1,"id""#,
            r#":9,"order":"sta"#,
            "tus\"}\n{\"version\":1",
        ] {
            assert!(control.turn().requests.is_empty());
            stream.write_all(piece.as_bytes()).unwrap();
        }
        let news = control.turn();
        assert_eq!(news.requests.len(), 1);
        assert_eq!(news.requests[0].request.id, 9);
        control.answer(news.requests[0].client, 9, Said::Ok(serde_json::json!({})));
        let mut line = [0u8; 17];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"{\"id\":9,\"ok\":{}}\n");
        drop(stream);
        assert_eq!(control.turn().gone.len(), 1);
    }

    #[test]
    fn whoever_sends_nonsense_or_too_much_is_told_and_cut_off() {
        for nonsense in [b"hello\n".to_vec(), vec![b'x'; orders::LONGEST_LINE + 10]] {
            let (mut control, mut stream) = pair("nonsense");
            let sender = std::thread::spawn(move || {
                let _ = stream.write_all(&nonsense);
                let mut answer = String::new();
                let _ = stream.read_to_string(&mut answer);
                answer
            });
            while control.turn().gone.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            assert!(sender.join().unwrap().contains(r#""id":0,"error":"#));
        }
    }

    #[test]
    fn a_command_without_its_descriptors_is_refused() {
        let (mut control, mut stream) = pair("descriptors");
        stream
            .write_all(b"{\"version\":1,\"id\":1,\"order\":{\"exec\":{\"node\":\"h1\",\"argv\":[\"x\"]}}}\n")
            .unwrap();
        let news = control.turn();
        assert!(news.requests.is_empty() && news.gone.len() == 1);
    }

    #[test]
    fn who_asks_for_nothing_makes_room_and_who_asks_is_kept() {
        let path = std::env::temp_dir().join(format!("timebound-control-{}-many", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut control = Control::new(listener);
        let connect = |control: &mut Control, order: &[u8]| {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(order).unwrap();
            let news = control.turn();
            (stream, news)
        };
        let order = br#"{"version":1,"id":1,"order":"status"}
"#;
        let mut silent: Vec<_> = (0..MOST_CLIENTS + 5)
            .map(|_| connect(&mut control, b"").0)
            .collect();
        assert_eq!(control.clients.len(), MOST_CLIENTS);
        let mut said = String::new();
        silent[0].read_to_string(&mut said).unwrap();
        assert!(said.contains("it asked for nothing"), "{said}");
        // In one turn with all of them, too.
        let asking: Vec<_> = (0..MOST_CLIENTS).map(|_| connect(&mut control, order)).collect();
        assert!(asking.iter().all(|(_, news)| news.requests.len() == 1));
        let (mut one_more, news) = connect(&mut control, order);
        assert!(news.requests.is_empty() && news.gone.is_empty());
        let mut said = String::new();
        // What it had sent was not read, so the end is an error, behind what was said.
        let _ = one_more.read_to_string(&mut said);
        assert!(said.contains("64 others talk to the experiment"), "{said}");
        std::fs::remove_file(&path).unwrap();
        drop(asking);
        assert_eq!(control.turn().gone.len(), MOST_CLIENTS);
    }
}
