//! TCP connections: those to members, those from senders, and what moves bytes over them (and to the broker).

use super::inbox::{Inbox, Input};
use crate::contract::Peering;
use crate::strangers::{Stranger, Strangers};
use crate::tls::Mutual;
use socket2::SockRef;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use timebound_protocol::peer::PeerId;
use timebound_protocol::peer::control::Control;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Between two attempts to connect: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
const CONNECT: Duration = Duration::from_secs(3);
/// A peer that has said nothing yet has that long.
const HELLO: Duration = Duration::from_secs(5);
/// Connections from others at a time that have said nothing yet: of one address (a manager makes one for each class), and bytes of all together.
const STRANGERS: (usize, usize) = (64, 16 << 20);
/// A connection whose other end is gone without a word is noticed: seconds of silence, between probes, and how many. Where each of four links loses
/// a tenth, more than half of all probes stay without an answer: three were too few to end a connection for.
const ALIVE: (u64, u64, u32) = (3, 1, 6);
/// Longest wait before a segment is sent again, ms. What goes here is little, and publishers wait for it; TCP alone would double its
/// wait up to two minutes, and a member that could not acknowledge for that reason was given up for lost.
const LONGEST_WAIT_MS: libc::c_int = 1000;
/// `linux/tcp.h`, since Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// What is to be written to a connection. When it is dropped the connection is closed.
#[derive(Debug)]
pub(super) struct Out {
    sender: UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

/// The other end of an [`Out`].
#[derive(Debug)]
pub(super) struct Outgoing {
    receiver: UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    bytes: Vec<u8>,
    written: usize,
}

impl Out {
    pub(super) fn new() -> (Self, Outgoing) {
        let (sender, receiver) = unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let outgoing = Outgoing {
            receiver,
            queued: Arc::clone(&queued),
            bytes: Vec::new(),
            written: 0,
        };
        (Self { sender, queued }, outgoing)
    }
    pub(super) fn send(&self, bytes: Vec<u8>) {
        self.queued.fetch_add(bytes.len(), Ordering::Relaxed);
        drop(self.sender.send(bytes));
    }
    /// Bytes that the other side has yet to read.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

impl Outgoing {
    /// Ready when there is nothing more to be written, ever.
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<io::Result<()>> {
        loop {
            while self.written < self.bytes.len() {
                let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.bytes[self.written..]))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += written;
                self.queued.fetch_sub(written, Ordering::Relaxed);
            }
            match self.receiver.poll_recv(cx) {
                Poll::Ready(Some(bytes)) => (self.bytes, self.written) = (bytes, 0),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    ready!(Pin::new(stream).poll_flush(cx))?;
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Moves bytes both ways until either end has enough: the other side closes, `out` is dropped, or `take` says no.
pub(super) async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    out: &mut Outgoing,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    poll_fn(|cx| {
        if let Poll::Ready(over) = out.poll_write(cx, stream) {
            return Poll::Ready(over);
        }
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            take(buffer.filled())?;
        }
    })
    .await
}

/// Class selector, DSCP = 8 * class (RFC 2474, section 4.2.2). A network that needs the mark sets it at its first switch.
pub(super) fn mark(socket: SockRef<'_>, class: u8) {
    drop(socket.set_tos_v4(u32::from(class) << 5));
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (idle, interval, count) = ALIVE;
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(idle))
        .with_interval(Duration::from_secs(interval))
        .with_retries(count);
    resend_soon(socket);
    SockRef::from(socket).set_tcp_keepalive(&alive)
}

/// Keeps the waits before repetitions short: the first six alike, where few segments are under way (`TCP_THIN_LINEAR_TIMEOUTS`, tcp(7)), and none
/// longer than [`LONGEST_WAIT_MS`]. A kernel that does not know one of them doubles the wait as ever.
fn resend_soon(socket: &TcpStream) {
    for (option, value) in [
        (libc::TCP_THIN_LINEAR_TIMEOUTS, 1),
        (TCP_RTO_MAX_MS, LONGEST_WAIT_MS),
    ] {
        // SAFETY: the kernel reads one `c_int`, which is alive, from a socket that is open.
        let _ = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
    }
}

/// Keeps a connection to a member until it is aborted.
pub(super) async fn keep(
    inbox: Inbox,
    said: Arc<Peering>,
    secure: Option<Mutual>,
    peer: PeerId,
    class: u8,
    to: SocketAddrV4,
) {
    let mut wait = RETRY.0;
    loop {
        let began = Instant::now();
        match dial(&inbox, &said, secure.as_ref(), (peer, class), to).await {
            // Who does not know us (yet) is not asked at once again.
            Ok(()) if began.elapsed() > RETRY.1 => wait = RETRY.0,
            Ok(()) => {}
            Err(error) => inbox.put(Input::Unreachable {
                peer,
                why: format!("{to}: {error}"),
            }),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RETRY.1);
    }
}

/// One connection to a member, from its beginning to its end. An error: there was none.
async fn dial(
    inbox: &Inbox,
    said: &Peering,
    secure: Option<&Mutual>,
    dialed: (PeerId, u8),
    to: SocketAddrV4,
) -> io::Result<()> {
    let mut socket = connect(said, dialed.1, to).await?;
    let opened = Opened {
        address: *to.ip(),
        dialed: Some(dialed),
        stranger: None,
        marker: SockRef::from(&socket).try_clone()?,
    };
    let Some(secure) = secure else {
        drop(serve(inbox, &mut socket, opened).await);
        return Ok(());
    };
    let failed = |error: io::Error| {
        let why = format!("TLS handshake: {error} (all managers of a site have peer.tls, or none)");
        io::Error::new(error.kind(), why)
    };
    let handshake = secure.connect(socket, (*to.ip()).into());
    let mut stream = tokio::time::timeout(CONNECT, handshake).await?.map_err(failed)?;
    let ended = serve(inbox, &mut stream, opened).await;
    // In TLS 1.3 the other side looks at our certificate when for us the handshake is over, so what it says of it comes as the end.
    if ended
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
    {
        return Err(failed(ended));
    }
    Ok(())
}

async fn connect(said: &Peering, class: u8, to: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((said.address, 0).into())?;
    // Before the first packet, so that the handshake has the class as well.
    mark(SockRef::from(&socket), class);
    let socket = tokio::time::timeout(CONNECT, socket.connect(to.into())).await??;
    prepare(&socket)?;
    Ok(socket)
}

/// Takes connections of senders.
pub(super) async fn accept(inbox: Inbox, listener: TcpListener, secure: Option<Mutual>) {
    let strangers = Strangers::new(STRANGERS.1, STRANGERS.0);
    loop {
        let Ok((socket, SocketAddr::V4(from))) = listener.accept().await else {
            tokio::time::sleep(RETRY.0).await;
            continue;
        };
        let address = *from.ip();
        let Some(stranger) = strangers.enter(inbox.number(), address.into()) else {
            let why = "too many connections that say nothing".to_owned();
            inbox.put(Input::Refused { address, why });
            continue;
        };
        if prepare(&socket).is_err() {
            continue;
        }
        let Ok(marker) = SockRef::from(&socket).try_clone() else {
            continue;
        };
        let opened = Opened {
            address,
            dialed: None,
            marker,
            stranger: Some(stranger),
        };
        tokio::task::spawn_local(taken(inbox.clone(), socket, secure.clone(), opened));
    }
}

async fn taken(inbox: Inbox, mut socket: TcpStream, secure: Option<Mutual>, opened: Opened) {
    let Some(secure) = secure else {
        drop(serve(&inbox, &mut socket, opened).await);
        return;
    };
    let address = opened.address;
    let handshake = tokio::time::timeout(HELLO, secure.accept(socket, address.into()));
    match handshake.await.map_err(io::Error::from).flatten() {
        Ok(mut stream) => drop(serve(&inbox, &mut stream, opened).await),
        Err(error) => inbox.put(Input::Refused {
            address,
            why: error.to_string(),
        }),
    }
}

/// What is known of a connection at its beginning.
struct Opened {
    address: Ipv4Addr,
    /// `None`: the other side connected.
    dialed: Option<(PeerId, u8)>,
    marker: socket2::Socket,
    /// `None`: this side connected.
    stranger: Option<Stranger>,
}

/// One connection from its beginning to its end; why it ended.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    inbox: &Inbox,
    stream: &mut S,
    opened: Opened,
) -> io::Error {
    let (out, mut outgoing) = Out::new();
    let link = inbox.number();
    inbox.put(Input::Opened {
        link,
        out,
        marker: opened.marker,
        address: opened.address,
        dialed: opened.dialed,
    });
    let mut waiting = Vec::new();
    let first = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let heard = Arc::clone(&first);
    let mut stranger = opened.stranger;
    let controls = inbox.clone();
    let carried = carry(stream, &mut outgoing, move |bytes| {
        waiting.extend_from_slice(bytes);
        stranger
            .as_ref()
            .map_or(Ok(()), |stranger| stranger.said(waiting.capacity()))?;
        let mut taken = 0;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        while let Some((control, length)) = Control::read(&waiting[taken..]).map_err(invalid)? {
            taken += length;
            heard.store(true, Ordering::Relaxed);
            // The hub looks at who it is.
            stranger = None;
            controls.put(Input::Control { link, control });
        }
        waiting.drain(..taken);
        Ok(())
    });
    let mut carried = std::pin::pin!(carried);
    let ended = match tokio::time::timeout(HELLO, carried.as_mut()).await {
        Ok(ended) => ended,
        Err(_) if first.load(Ordering::Relaxed) => carried.await,
        Err(elapsed) => Err(elapsed.into()),
    };
    inbox.put(Input::Closed { link });
    match ended {
        Ok(()) => io::ErrorKind::ConnectionAborted.into(),
        Err(error) => error,
    }
}
