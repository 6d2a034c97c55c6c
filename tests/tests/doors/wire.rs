//! A TCP connection to the HTTP door with nothing on top of it, for clients that do not behave.

use std::fmt::Write as _;
use std::net::SocketAddr;

use mgp_tests::harness::wait::within;
use mgp_tests::harness::{DEADLINE, HttpClient, Kernel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What the client's machine takes before its reader does, in bytes: little.
const TAKEN: u32 = 4096;

/// The connection.
pub(crate) struct Wire {
    stream: TcpStream,
    door: SocketAddr,
}

impl Wire {
    pub(crate) async fn to(kernel: &Kernel) -> Self {
        let door = kernel.url().strip_prefix("http://").unwrap();
        let door: SocketAddr = door.strip_suffix("/mcp").unwrap().parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(TAKEN).unwrap();
        let stream = socket.connect(door).await.unwrap();
        Self { stream, door }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// What comes until the door closes the connection, or resets it.
    pub(crate) async fn rest(&mut self) -> String {
        let (mut rest, mut part) = (Vec::new(), vec![0; 64 << 10]);
        let reading = async {
            while let Ok(n @ 1..) = self.stream.read(&mut part).await {
                rest.extend_from_slice(&part[..n]);
            }
        };
        within("the end of the connection", DEADLINE, reading).await;
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// What comes until `text` has come.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut came = String::new();
        let mut part = vec![0; 4096];
        let reading = async {
            while !came.contains(text) {
                let n = self.stream.read(&mut part).await.unwrap();
                assert!(n > 0, "the door closed before {text:?}: {came}");
                came.push_str(&String::from_utf8_lossy(&part[..n]));
            }
        };
        within(text, DEADLINE, reading).await;
        came
    }

    /// Breaks the connection off: the door gets a reset instead of an end.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// True while the door holds its end open, as the machine tells.
    pub(crate) fn is_held(&self) -> bool {
        let own = self.stream.local_addr().unwrap();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let (near, far) = (in_hex(self.door), in_hex(own));
        table.lines().any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let ends = (fields.next() == Some(&near)) && (fields.next() == Some(&far));
            ends && fields.next() == Some(ESTABLISHED)
        })
    }
}

/// The state of a connection whose both ends are open.
const ESTABLISHED: &str = "01";

/// An address as the table of connections writes it.
fn in_hex(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else {
        panic!("the door is on 127.0.0.1")
    };
    let ip = u32::from_ne_bytes(address.ip().octets());
    format!("{ip:08X}:{:04X}", address.port())
}

/// A request with the headers of `client` and the first `sent` bytes of `body`.
pub(crate) fn request(client: &HttpClient, verb: &str, body: &str, sent: usize) -> String {
    let mut text = format!("{verb} /mcp HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in &client.headers {
        write!(text, "{name}: {}\r\n", value.to_str().unwrap()).unwrap();
    }
    write!(
        text,
        "content-length: {}\r\n\r\n{}",
        body.len(),
        &body[..sent]
    )
    .unwrap();
    text
}
