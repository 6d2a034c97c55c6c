//! What it takes to connect to any server: shared by all supervisors.

use std::path::PathBuf;
use std::time::Duration;

use mgp_transports::http::client::Client;

/// Shared means of connecting.
#[derive(Debug)]
pub struct Connector {
    /// For servers reached over HTTP.
    pub client: Client,
    /// Version of this program, told to servers.
    pub version: String,
    /// Marks every process of this kernel.
    pub mark: String,
    /// Working folder of children whose entry names none.
    pub folder: PathBuf,
    /// How long calls under way may take when a server is to stop.
    pub drain: Duration,
}
