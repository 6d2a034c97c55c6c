//! Many HTTP clients, each with a connection of its own, perhaps a session, and one call in flight.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use http::header::AUTHORIZATION;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::bounds::Allowance;
use super::latency::Latencies;
use super::{Bounds, Request, Run, Talk, request};
use crate::harness::HttpClient;
use crate::harness::http::SESSION;

/// The protocol version of all load in sessions.
pub const SPOKEN: &str = "2025-06-18";

/// Clients of one endpoint, each initialized where they speak in sessions.
#[derive(Debug)]
pub struct HttpLoad {
    host: String,
    path: String,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    headers: String,
}

impl HttpLoad {
    /// Opens `clients` connections to `url`, and a session on each where they speak in sessions.
    ///
    /// # Errors
    /// What a connection ran into.
    ///
    /// # Panics
    /// When `url` is no HTTP URL or the endpoint refuses a session.
    pub async fn open(url: &str, clients: usize, talk: Talk) -> io::Result<Self> {
        Self::open_as(url, None, clients, talk).await
    }

    /// The same of an agent that shows this token.
    ///
    /// # Errors
    /// What a connection ran into.
    ///
    /// # Panics
    /// When `url` is no HTTP URL or the endpoint refuses a session.
    pub async fn open_as(
        url: &str,
        token: Option<&str>,
        clients: usize,
        talk: Talk,
    ) -> io::Result<Self> {
        let address = url.strip_prefix("http://").expect("plain HTTP");
        let (host, path) = address.split_once('/').expect("a path");
        let mut load = Self {
            host: host.to_owned(),
            path: format!("/{path}"),
            clients: Vec::with_capacity(clients),
        };
        for _ in 0..clients {
            let client = Client::open(url, token, &load.host, talk).await?;
            load.clients.push(client);
        }
        Ok(load)
    }

    /// Sends the request again and again from all clients until the bounds are reached.
    ///
    /// # Errors
    /// The first connection that broke or answer that was no result.
    pub async fn run(&mut self, request: &Request, bounds: Bounds) -> io::Result<Run> {
        let allowance = Rc::new(bounds.allowance());
        let (tasks, start) = (LocalSet::new(), Instant::now());
        let ended: Vec<_> = self
            .clients
            .drain(..)
            .map(|client| {
                let request = request.posted(&self.host, &self.path, &client.headers);
                tasks.spawn_local(client.run(request, Rc::clone(&allowance)))
            })
            .collect();
        tasks.await;
        let elapsed = start.elapsed();
        let mut latencies = Latencies::with_room(bounds.calls);
        for client in ended {
            let (client, times) = client.await.map_err(io::Error::other)??;
            latencies.join(&times);
            self.clients.push(client);
        }
        Ok(Run { latencies, elapsed })
    }

    /// One call whose whole answer is given back, body only.
    ///
    /// # Errors
    /// What the connection ran into.
    ///
    /// # Panics
    /// When there is no client.
    pub async fn once(&mut self, request: &Request) -> io::Result<String> {
        let client = self.clients.first_mut().expect("a client");
        let mut request = request.posted(&self.host, &self.path, &client.headers);
        let body = client.call(request.with_id(0)).await?;
        Ok(String::from_utf8_lossy(&client.buffer[body..]).into_owned())
    }
}

impl Client {
    async fn open(url: &str, token: Option<&str>, host: &str, talk: Talk) -> io::Result<Self> {
        let mut headers = match talk {
            Talk::Session => session(url, token).await,
            Talk::Alone => String::new(),
        };
        if let Some(token) = token {
            headers.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::with_capacity(256 * 1024),
            headers,
        })
    }

    async fn run(
        mut self,
        mut request: Request,
        allowance: Rc<Allowance>,
    ) -> io::Result<(Self, Latencies)> {
        let (mut latencies, mut n) = (Latencies::default(), 0);
        let mut start = Instant::now();
        while allowance.take(start) {
            n += 1;
            let body = self.call(request.with_id(n)).await?;
            if !request::is_result(&self.buffer[body..]) {
                let told = String::from_utf8_lossy(&self.buffer);
                return Err(io::Error::other(format!("no result: {told:.2000}")));
            }
            let end = Instant::now();
            latencies.add(end - start);
            start = end;
        }
        Ok((self, latencies))
    }

    /// Sends a request and reads the whole answer into the buffer; gives where its body begins.
    async fn call(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write_all(bytes).await?;
        self.buffer.clear();
        let mut head = None;
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let told = String::from_utf8_lossy(&self.buffer);
                return Err(io::Error::other(format!("closed after: {told:.500}")));
            }
            if head.is_none() {
                head = Head::read(&self.buffer)?;
            }
            if let Some(head) = &head
                && head.is_whole(&self.buffer)
            {
                return Ok(head.length);
            }
        }
    }
}

/// Opens a session: the headers of each request in it.
async fn session(url: &str, token: Option<&str>) -> String {
    let mut opener = HttpClient::new(url);
    if let Some(token) = token {
        opener.set(AUTHORIZATION, &format!("Bearer {token}"));
    }
    opener.open_session(SPOKEN, "{}").await;
    let session = opener.headers.get(SESSION).and_then(|id| id.to_str().ok());
    let session = session.map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
    format!("{session}MCP-Protocol-Version: {SPOKEN}\r\n")
}

/// As much of a response's head as is needed to see its end.
struct Head {
    length: usize,
    body: Body,
}

enum Body {
    Exactly(usize),
    Chunked,
}

impl Head {
    /// `None` while the head is incomplete.
    fn read(buffer: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = String::from_utf8_lossy(&buffer[..end]);
        if head.get(9..12) != Some("200") {
            let told = String::from_utf8_lossy(buffer);
            return Err(io::Error::other(format!("refused: {told:.2000}")));
        }
        let header = |name| head.lines().find_map(|line| value(line, name));
        let body = header("content-length").and_then(|n| n.parse().ok());
        Ok(Some(Self {
            length: end + 4,
            body: body.map_or(Body::Chunked, Body::Exactly),
        }))
    }

    fn is_whole(&self, buffer: &[u8]) -> bool {
        match self.body {
            Body::Exactly(bytes) => buffer.len() >= self.length + bytes,
            Body::Chunked => buffer.ends_with(b"0\r\n\r\n"),
        }
    }
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    key.eq_ignore_ascii_case(name).then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_seen_in_either_form() {
        let exact = b"HTTP/1.1 200 OK\r\ncontent-Length: 2\r\n\r\n{}";
        let head = Head::read(exact).unwrap().unwrap();
        assert!(head.is_whole(exact) && !head.is_whole(&exact[..exact.len() - 1]));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
        let head = Head::read(chunked).unwrap().unwrap();
        assert!(head.is_whole(chunked) && !head.is_whole(&chunked[..chunked.len() - 5]));
        assert!(Head::read(b"HTTP/1.1 404 Not Found\r\n\r\n").is_err());
        assert!(Head::read(b"HTTP/1.1 200").unwrap().is_none());
    }
}
