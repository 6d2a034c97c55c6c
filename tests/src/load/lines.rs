//! A client on the kernel's own socket that looks at lines no further than it has to.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::http::SPOKEN;
use crate::harness::handshake::initialize;
use crate::harness::mgp::{declaration, declaring};

/// Room for what comes while others are read.
const BATCH: usize = 64 * 1024;

/// One line connection, initialized in a session.
#[derive(Debug)]
pub struct LineLoad {
    output: BufReader<OwnedReadHalf>,
    input: OwnedWriteHalf,
    line: String,
}

impl LineLoad {
    /// Connects, and declares these extensions of MGP.
    ///
    /// # Errors
    /// When nobody listens or the kernel leaves.
    pub async fn open(socket: &Path, extensions: &[&str]) -> io::Result<Self> {
        let capabilities = declaring(SPOKEN, "{}", &declaration(extensions));
        Self::declaring(socket, &capabilities).await
    }

    /// Connects as a client that can do `capabilities` (JSON).
    ///
    /// # Errors
    /// When nobody listens or the kernel leaves.
    pub async fn declaring(socket: &Path, capabilities: &str) -> io::Result<Self> {
        let (output, input) = UnixStream::connect(socket).await?.into_split();
        let mut load = Self {
            output: BufReader::with_capacity(BATCH, output),
            input,
            line: String::new(),
        };
        load.send(&initialize(SPOKEN, capabilities)).await?;
        load.next().await?;
        load.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await?;
        Ok(load)
    }

    /// Sends one message.
    ///
    /// # Errors
    /// When the kernel has left.
    pub async fn send(&mut self, frame: &str) -> io::Result<()> {
        self.input.write_all(format!("{frame}\n").as_bytes()).await
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// When the kernel has left.
    pub async fn next(&mut self) -> io::Result<&str> {
        self.line.clear();
        match self.output.read_line(&mut self.line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(&self.line),
        }
    }

    /// Reads until a message holds this text, and gives it.
    ///
    /// # Errors
    /// When the kernel has left.
    pub async fn until(&mut self, text: &str) -> io::Result<&str> {
        while !self.next().await?.contains(text) {}
        Ok(&self.line)
    }
}
