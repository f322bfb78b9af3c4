//! One background flow: both of its ends and what they count.

use super::schedule::{Carrier, bulk, picture_bytes, releases};
use super::tcp::End;
use super::{CLIENT, LISTENER, Tools, token};
use crate::error::EndpointError;
use crate::plan::{Background, Traffic};
use crate::release::Releases;
use crate::sockets::{Owner, address, is_pause};
use crate::summary::BackgroundSummary;
use crate::sys::{Interest, Ready};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// Datagrams read before other sockets get their turn.
const BATCH: usize = 256;
/// Bulk data that the connection did not take waits for at most this long; then the rate is out of reach.
const MOST_OWED_NS: u64 = 1_000_000_000;

enum Ends {
    Udp {
        sender: UdpSocket,
        receiver: UdpSocket,
        destination: SocketAddr,
    },
    Tcp {
        listener: TcpListener,
        client: Option<End>,
        server: Option<End>,
        is_connected: bool,
    },
}

pub(super) struct Flow<'p> {
    plan: &'p Background,
    index: usize,
    ends: Ends,
    releases: Option<Releases>,
    origin_ns: i64,
    pub(super) stop_ns: i64,
    is_over: bool,
    /// Releases so far (pictures, requests).
    released: u64,
    /// Bytes of messages that are not complete yet, at the server and back at the client.
    partial_in: u64,
    partial_back: u64,
    /// Requests whose time came while an answer was outstanding.
    waiting_requests: u64,
    is_waiting: bool,
    pub(super) counts: BackgroundSummary,
}

impl<'p> Flow<'p> {
    /// Opens both ends; a TCP connection is under way then.
    pub(super) fn open(
        plan: &'p Background,
        index: usize,
        tools: &mut Tools<'_>,
    ) -> Result<Self, EndpointError> {
        let source = Owner {
            name: &plan.name,
            node: &plan.source,
            dscp: plan.dscp,
        };
        let destination = Owner {
            name: &plan.name,
            node: &plan.destination,
            dscp: plan.dscp,
        };
        let local = address(plan.source_address, plan.source_port);
        let remote = address(Some(plan.destination_address), plan.port);
        let watch = |source| EndpointError::System {
            action: "watch a socket",
            source,
        };
        let ends = match plan.traffic.carrier() {
            Carrier::Udp => {
                let receiver = tools.opener.udp_receiver(&destination, remote, None)?;
                tools
                    .epoll
                    .add(&receiver, Interest::Read, token(index, LISTENER))
                    .map_err(watch)?;
                let sender = tools.opener.udp_sender(&source, local, *remote.ip(), 16)?;
                Ends::Udp {
                    sender,
                    receiver,
                    destination: remote.into(),
                }
            }
            Carrier::Tcp => {
                let listener = tools.opener.listen(&destination, remote)?;
                tools
                    .epoll
                    .add(&listener, Interest::Read, token(index, LISTENER))
                    .map_err(watch)?;
                let stream = tools
                    .opener
                    .connect(&source, local, remote)?
                    .map_err(|source| connect_failed(plan, source))?;
                let client = End::new(stream, token(index, CLIENT), &tools.epoll, true).map_err(watch)?;
                Ends::Tcp {
                    listener,
                    client: Some(client),
                    server: None,
                    is_connected: false,
                }
            }
        };
        Ok(Self {
            plan,
            index,
            ends,
            releases: None,
            origin_ns: 0,
            stop_ns: i64::MAX,
            is_over: false,
            released: 0,
            partial_in: 0,
            partial_back: 0,
            waiting_requests: 0,
            is_waiting: false,
            counts: BackgroundSummary {
                name: plan.name.clone(),
                ..BackgroundSummary::default()
            },
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        match &self.ends {
            Ends::Udp { .. } => true,
            Ends::Tcp {
                server, is_connected, ..
            } => *is_connected && server.is_some(),
        }
    }

    /// Why it cannot connect, once that is known.
    pub(super) fn connect_error(&self) -> Option<EndpointError> {
        let reason = self.counts.failure.as_ref()?;
        Some(connect_failed(self.plan, io::Error::other(reason.clone())))
    }

    pub(super) fn connect_timeout(&self) -> EndpointError {
        connect_failed(self.plan, io::ErrorKind::TimedOut.into())
    }

    /// Sets its times; returns when it first has something to do.
    pub(super) fn start(&mut self, start_ns: i64, length_ns: u64) -> i64 {
        let stop_ns = self.plan.stop_ns.unwrap_or(length_ns).min(length_ns);
        self.origin_ns = start_ns.saturating_add_unsigned(self.plan.start_ns);
        self.stop_ns = start_ns.saturating_add_unsigned(stop_ns);
        let active_ns = stop_ns.saturating_sub(self.plan.start_ns);
        self.releases = releases(&self.plan.traffic, self.index as u32, active_ns);
        if self.releases.is_some() {
            self.next_release().unwrap_or(self.stop_ns)
        } else {
            self.origin_ns
        }
    }

    fn next_release(&mut self) -> Option<i64> {
        let due = self.releases.as_mut()?.next()?;
        Some(self.origin_ns.saturating_add_unsigned(due.planned_ns))
    }

    /// Does what is due at this time; returns when to come again.
    pub(super) fn fire(&mut self, now_ns: i64, tools: &mut Tools<'_>) -> Option<i64> {
        if now_ns >= self.stop_ns {
            self.end();
            return None;
        }
        let result = self.release(tools);
        self.note(result);
        // The stop itself is an event too, for what is not clocked and for what is still owed.
        Some(self.next_release().unwrap_or(self.stop_ns))
    }

    fn release(&mut self, tools: &mut Tools<'_>) -> io::Result<()> {
        let index = self.released;
        self.released += 1;
        match self.plan.traffic {
            Traffic::UdpConstant { payload_bytes, .. } | Traffic::UdpPoisson { payload_bytes, .. } => {
                self.datagrams(u64::from(payload_bytes), u64::from(payload_bytes), tools);
            }
            Traffic::UdpBurst {
                frames,
                payload_bytes,
                ..
            } => {
                let bytes = u64::from(payload_bytes);
                self.datagrams(bytes * u64::from(frames), bytes, tools);
            }
            Traffic::Video {
                group,
                i_picture_bytes,
                p_picture_bytes,
                packet_bytes,
                ..
            } => {
                let bytes = picture_bytes(index, group, i_picture_bytes, p_picture_bytes);
                match self.plan.traffic.carrier() {
                    Carrier::Udp => self.datagrams(bytes, u64::from(packet_bytes), tools),
                    Carrier::Tcp => {
                        self.counts.sent_messages += 1;
                        self.send(bytes, tools)?;
                    }
                }
            }
            Traffic::TcpBulk { rate_bps: 0 } => self.send(u64::MAX, tools)?,
            Traffic::TcpBulk { rate_bps } => {
                let (bytes, gap_ns) = bulk(rate_bps);
                let most = bytes.saturating_mul(MOST_OWED_NS / gap_ns + 1);
                let owed = self.client().map_or(0, |client| client.owed);
                self.send(bytes.min(most.saturating_sub(owed)), tools)?;
            }
            Traffic::RequestResponse { request_bytes, .. } => {
                if self.is_waiting {
                    self.waiting_requests += 1;
                } else {
                    self.request(u64::from(request_bytes), tools)?;
                }
            }
        }
        Ok(())
    }

    fn request(&mut self, bytes: u64, tools: &mut Tools<'_>) -> io::Result<()> {
        self.is_waiting = true;
        self.counts.sent_messages += 1;
        self.send(bytes, tools)
    }

    fn client(&mut self) -> Option<&mut End> {
        match &mut self.ends {
            Ends::Tcp { client, .. } => client.as_mut(),
            Ends::Udp { .. } => None,
        }
    }

    /// Writes `bytes` to the connection, now or as it takes them.
    fn send(&mut self, bytes: u64, tools: &mut Tools<'_>) -> io::Result<()> {
        if let Some(client) = self.client() {
            client.owed = client.owed.saturating_add(bytes);
        }
        self.write_client(tools)
    }

    fn write_client(&mut self, tools: &mut Tools<'_>) -> io::Result<()> {
        let Some(client) = self.client() else {
            return Ok(());
        };
        let moved = client.write(&tools.epoll)?;
        self.counts.sent_bytes += moved.bytes;
        if matches!(self.plan.traffic, Traffic::TcpBulk { .. }) {
            self.counts.sent_messages += moved.calls;
        }
        Ok(())
    }

    /// Sends `bytes` in datagrams of at most `each`.
    fn datagrams(&mut self, mut bytes: u64, each: u64, tools: &Tools<'_>) {
        let Ends::Udp {
            sender, destination, ..
        } = &self.ends
        else {
            return;
        };
        while bytes > 0 {
            let size = bytes.min(each);
            bytes -= size;
            match sender.send_to(&tools.zeros[..size as usize], *destination) {
                Ok(count) => {
                    self.counts.sent_bytes += count as u64;
                    self.counts.sent_messages += 1;
                }
                Err(_) => self.counts.errors += 1,
            }
        }
    }

    /// Something can be read or accepted at the destination (for UDP too).
    pub(super) fn listener_ready(&mut self, tools: &mut Tools<'_>) {
        let result = match &mut self.ends {
            Ends::Udp { receiver, .. } => {
                for _ in 0..BATCH {
                    match receiver.recv(&mut tools.scratch) {
                        Ok(bytes) => {
                            self.counts.received_bytes += bytes as u64;
                            self.counts.received_messages += 1;
                        }
                        Err(error) if is_pause(&error) => break,
                        // A pending socket error (ICMP) is taken by the read that reports it; the next read goes on.
                        Err(_) => {}
                    }
                }
                Ok(())
            }
            Ends::Tcp { listener, server, .. } => match listener.accept() {
                // One connection is all there is; whoever else knocks is turned away.
                Ok(_) if server.is_some() => Ok(()),
                Ok((stream, _)) => {
                    accepted(stream, self.plan, self.index, tools).map(|end| *server = Some(end))
                }
                Err(error) if is_pause(&error) => Ok(()),
                Err(error) => Err(error),
            },
        };
        self.note(result);
    }

    pub(super) fn client_ready(&mut self, ready: Ready, now_ns: i64, tools: &mut Tools<'_>) {
        let result = self.serve_client(ready, now_ns, tools);
        self.note(result);
    }

    fn serve_client(&mut self, ready: Ready, now_ns: i64, tools: &mut Tools<'_>) -> io::Result<()> {
        let Ends::Tcp {
            client: Some(client),
            is_connected,
            ..
        } = &mut self.ends
        else {
            return Ok(());
        };
        if ready.writable {
            if !*is_connected {
                client.connected()?;
                *is_connected = true;
            }
            self.write_client(tools)?;
        }
        if !ready.readable {
            return Ok(());
        }
        let Some(client) = self.client() else {
            return Ok(());
        };
        let moved = client.read(&mut tools.scratch, &tools.epoll)?;
        if moved.closed {
            return Err(io::Error::other("the destination closed the connection"));
        }
        let Traffic::RequestResponse {
            request_bytes,
            response_bytes,
            period_ns,
        } = self.plan.traffic
        else {
            return Ok(());
        };
        self.counts.response_bytes += moved.bytes;
        self.partial_back += moved.bytes;
        if self.partial_back >= u64::from(response_bytes) {
            self.partial_back -= u64::from(response_bytes);
            self.counts.responses += 1;
            self.is_waiting = false;
            let closed_loop = period_ns == 0 && now_ns < self.stop_ns;
            if closed_loop || (self.waiting_requests > 0 && !self.is_over) {
                self.waiting_requests = self.waiting_requests.saturating_sub(1);
                self.request(u64::from(request_bytes), tools)?;
            }
        }
        Ok(())
    }

    pub(super) fn server_ready(&mut self, ready: Ready, tools: &mut Tools<'_>) {
        let result = self.serve_server(ready, tools);
        self.note(result);
    }

    fn serve_server(&mut self, ready: Ready, tools: &mut Tools<'_>) -> io::Result<()> {
        let Ends::Tcp {
            server: Some(server), ..
        } = &mut self.ends
        else {
            return Ok(());
        };
        if ready.readable {
            let moved = server.read(&mut tools.scratch, &tools.epoll)?;
            if moved.closed {
                return Err(io::Error::other("the source closed the connection"));
            }
            self.counts.received_bytes += moved.bytes;
            self.partial_in += moved.bytes;
            match self.plan.traffic {
                Traffic::RequestResponse {
                    request_bytes,
                    response_bytes,
                    ..
                } => {
                    let requests = self.partial_in / u64::from(request_bytes);
                    self.partial_in %= u64::from(request_bytes);
                    self.counts.received_messages += requests;
                    server.owed = server.owed.saturating_add(requests * u64::from(response_bytes));
                }
                Traffic::Video {
                    group,
                    i_picture_bytes,
                    p_picture_bytes,
                    ..
                } => loop {
                    let index = self.counts.received_messages;
                    let bytes = picture_bytes(index, group, i_picture_bytes, p_picture_bytes);
                    if self.partial_in < bytes {
                        break;
                    }
                    self.partial_in -= bytes;
                    self.counts.received_messages += 1;
                },
                _ => self.counts.received_messages += moved.calls,
            }
        }
        server.write(&tools.epoll).map(|_| ())
    }

    /// Stops sending; what is under way may still arrive.
    fn end(&mut self) {
        self.is_over = true;
        self.waiting_requests = 0;
        if let (Traffic::TcpBulk { .. }, Some(client)) = (&self.plan.traffic, self.client()) {
            client.owed = 0;
        }
    }

    /// Has it stopped, and has everything arrived?
    pub(super) fn is_settled(&self) -> bool {
        let failed = self.counts.failure.is_some();
        let received = self.counts.received_bytes == self.counts.sent_bytes;
        self.is_over && (failed || (received && !self.is_waiting))
    }

    /// A flow that breaks ends alone: background traffic is no reason to end a run.
    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.counts.failure.get_or_insert(error.to_string());
            self.is_over = true;
            if let Ends::Tcp { client, server, .. } = &mut self.ends {
                (*client, *server) = (None, None);
            }
        }
    }
}

fn accepted(
    stream: std::net::TcpStream,
    plan: &Background,
    index: usize,
    tools: &Tools<'_>,
) -> io::Result<End> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    if plan.dscp > 0 {
        socket2::SockRef::from(&stream).set_tos_v4(u32::from(plan.dscp) << 2)?;
    }
    End::new(stream, token(index, super::SERVER), &tools.epoll, false)
}

fn connect_failed(plan: &Background, source: io::Error) -> EndpointError {
    EndpointError::Socket {
        endpoint: plan.name.clone(),
        node: plan.source.clone(),
        action: "connect",
        source,
    }
}
