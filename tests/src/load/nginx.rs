//! Debian's nginx as a plain HTTP hop: what a gateway that understands nothing costs.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::harness::process::usage::below;
use crate::harness::{Process, Program, wait_until};

/// Where Debian puts it, for users whose `PATH` does not have it.
const PLACES: [&str; 2] = ["/usr/sbin/nginx", "/usr/bin/nginx"];

/// A running nginx in a folder of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    port: u16,
    _folder: TempDir,
}

impl Nginx {
    /// Its version, `None` where it is not installed.
    #[must_use]
    pub fn version() -> Option<String> {
        let output = Command::new(installed()?).arg("-v").output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Some(said.trim().trim_start_matches("nginx version: ").to_owned())
    }

    /// Starts it in front of a loopback port, with so many workers.
    ///
    /// # Panics
    /// When it is not installed or is not up by the deadline.
    pub async fn start(upstream: u16, workers: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let config = folder.path().join("nginx.conf");
        fs::write(
            &config,
            configuration(folder.path(), port, upstream, workers),
        )
        .expect("the configuration is written");
        let prefix = folder.path().display().to_string();
        let program = installed().expect("nginx is installed");
        let config = config.display().to_string();
        let nginx = Program::new(program, ["-p", &prefix, "-e", "stderr", "-c", &config]);
        let process = Process::start("nginx", &nginx);
        // It listens before it has workers, and those are what is measured.
        wait_until("nginx is up", Duration::from_secs(10), async || {
            let listens = TcpStream::connect(("127.0.0.1", port)).await.is_ok();
            listens && below(process.pid()).len() == workers
        })
        .await;
        Self {
            process,
            port,
            _folder: folder,
        }
    }

    /// The endpoint of the upstream, through it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Its processes, the master and its workers.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let master = self.process.pid();
        [vec![master], below(master)].concat()
    }
}

fn installed() -> Option<&'static str> {
    PLACES.into_iter().find(|place| Path::new(place).is_file())
}

/// A port that was free a moment ago: nginx cannot take one by itself.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    listener.local_addr().expect("a bound socket").port()
}

/// A hop with everything switched off that costs time and is not the hop. Connections to the
/// upstream are kept; bodies of 64 KiB stay in memory; nothing is written outside the folder.
fn configuration(folder: &Path, port: u16, upstream: u16, workers: usize) -> String {
    let at = folder.display();
    format!(
        "daemon off;
worker_processes {workers};
pid {at}/pid;
error_log stderr error;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {at}/body;
    proxy_temp_path {at}/proxy;
    fastcgi_temp_path {at}/fastcgi;
    uwsgi_temp_path {at}/uwsgi;
    scgi_temp_path {at}/scgi;
    client_body_buffer_size 256k;
    proxy_buffers 32 8k;
    keepalive_requests 100000000;
    upstream fixture {{
        server 127.0.0.1:{upstream};
        keepalive 256;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://fixture;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
        }}
    }}
}}
"
    )
}
