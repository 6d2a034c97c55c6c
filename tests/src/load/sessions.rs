//! Sessions that do nothing: what each costs while it only exists.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http::SPOKEN;
use crate::harness::HttpClient;
use crate::harness::http::SESSION;

/// Descriptors that a process needs beside those of its sessions.
const BESIDE: u64 = 500;

/// Sessions that stay open as long as this lives.
#[derive(Debug, Default)]
pub struct IdleSessions {
    streams: Vec<TcpStream>,
    opened: usize,
}

impl IdleSessions {
    /// Opens one session: `initialize`, `notifications/initialized`, and when `stream` is set the GET
    /// stream, which keeps a connection.
    ///
    /// # Errors
    /// What the connection ran into, or the head of an answer that was no stream.
    ///
    /// # Panics
    /// When the endpoint refuses the session.
    pub async fn open(&mut self, opener: &HttpClient, url: &str, stream: bool) -> io::Result<()> {
        let mut opener = opener.clone();
        opener.open_session(SPOKEN, "{}").await;
        self.opened += 1;
        if stream {
            let session = opener.headers.get(SESSION).and_then(|id| id.to_str().ok());
            self.streams
                .push(listen(url, session.unwrap_or_default()).await?);
        }
        Ok(())
    }

    /// How many were opened.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened
    }
}

async fn listen(url: &str, session: &str) -> io::Result<TcpStream> {
    let address = url.strip_prefix("http://").unwrap_or(url);
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let mut stream = TcpStream::connect(host).await?;
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\
         Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {SPOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let opened = head.starts_with(b"HTTP/1.1 200");
    let told = || String::from_utf8_lossy(&head).into_owned();
    opened
        .then_some(stream)
        .ok_or_else(|| io::Error::other(told()))
}

/// Raises this process's limit of descriptors, which children inherit, as far as it may.
/// Gives how many sessions with a stream then fit.
#[must_use]
pub fn room() -> u64 {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    // Refused only when the limit is higher already.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    soft.saturating_sub(BESIDE)
}
