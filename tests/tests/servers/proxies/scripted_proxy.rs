//! A proxy that wants a login, answers for every name that ends in `.test`, and writes down what it was asked.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// `ada:hush-hush`.
const LOGIN: &str = "proxy-authorization: basic ywrhomh1c2gtahvzaa==";
const TOKEN: &str = "token-of-guarded";

/// What was asked, and by whom without a login.
#[derive(Default)]
struct ProxyLog {
    asked: Vec<String>,
    strangers: Vec<String>,
}

pub(super) struct ScriptedProxy {
    /// Where it listens.
    pub(super) at: String,
    /// Who has to be trusted for what it shows of https, in PEM.
    pub(super) authority: String,
    log: Arc<Mutex<ProxyLog>>,
}

#[derive(Clone)]
struct Play {
    log: Arc<Mutex<ProxyLog>>,
    acceptor: TlsAcceptor,
    /// The MCP server that stands for all of them.
    mcp: u16,
}

/// One request.
struct ProxiedRequest {
    head: String,
    method: String,
    target: String,
    body: Vec<u8>,
}

impl ScriptedProxy {
    pub(super) async fn start(mcp: u16) -> Self {
        let names = ["guarded.test", "registry.test"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let log = Arc::default();
        let play = Play {
            log: Arc::clone(&log),
            acceptor: TlsAcceptor::from(Arc::new(config)),
            mcp,
        };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let play = play.clone();
                tokio::spawn(async move { play.serve(client).await });
            }
        });
        Self {
            at,
            authority: made.cert.pem(),
            log,
        }
    }

    /// What it was asked, in the order of the questions.
    pub(super) fn asked(&self) -> Vec<String> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .asked
            .clone()
    }

    /// Requests that had no login for the proxy, or showed it to a server.
    pub(super) fn strangers(&self) -> Vec<String> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .strangers
            .clone()
    }
}

impl Play {
    fn note(&self, line: String, known: bool) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if !known {
            log.strangers.push(line.clone());
        }
        log.asked.push(line);
    }

    async fn serve(self, mut client: TcpStream) {
        let Some(request) = read(&mut client).await else {
            return;
        };
        let line = format!("{} {}", request.method, request.target);
        self.note(line, request.head.to_lowercase().contains(LOGIN));
        if request.method != "CONNECT" {
            let host = request
                .target
                .trim_start_matches("http://")
                .split('/')
                .next();
            let host = host.unwrap_or_default().to_owned();
            return self.forward(&mut client, &host, request).await;
        }
        if !["guarded.test:443", "registry.test:443"].contains(&&*request.target) {
            let no = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n";
            let _ = client.write_all(no).await;
            return;
        }
        let yes = b"HTTP/1.1 200 Connection established\r\n\r\n";
        let _ = client.write_all(yes).await;
        let Ok(mut inside) = self.acceptor.accept(client).await else {
            return;
        };
        let host = request.target.trim_end_matches(":443");
        let Some(request) = read(&mut inside).await else {
            return;
        };
        let head = request.head.to_lowercase();
        let line = format!("{host} {} {}", request.method, request.target);
        self.note(line, !head.contains("proxy-authorization"));
        let guarded = host == "guarded.test" && request.target == "/mcp";
        match page(host, &request.target) {
            _ if guarded && !head.contains(TOKEN) => {
                let no = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = inside.write_all(no.as_bytes()).await;
            }
            _ if guarded => self.forward(&mut inside, host, request).await,
            page => {
                let (status, body) =
                    page.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
                let whole = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = inside.write_all(whole.as_bytes()).await;
            }
        }
        let _ = inside.shutdown().await;
    }

    /// Has the MCP server answer, which knows itself by its own name alone.
    async fn forward(
        &self,
        client: &mut (impl AsyncWrite + Unpin),
        host: &str,
        request: ProxiedRequest,
    ) {
        let own = format!("127.0.0.1:{}", self.mcp);
        let mut server = TcpStream::connect(&own).await.unwrap();
        let mut lines = request.head.split("\r\n").skip(1);
        let kept = lines.by_ref().filter(|line| !line.is_empty());
        let kept = kept.filter(|line| !line.to_lowercase().starts_with("proxy-"));
        let kept: Vec<String> = kept.map(|line| line.replace(host, &own)).collect();
        let head = format!(
            "{} /mcp HTTP/1.1\r\n{}\r\nconnection: close\r\n\r\n",
            request.method,
            kept.join("\r\n")
        );
        server.write_all(head.as_bytes()).await.unwrap();
        server.write_all(&request.body).await.unwrap();
        let mut bytes = vec![0; 16 << 10];
        while let Ok(read @ 1..) = server.read(&mut bytes).await {
            if client.write_all(&bytes[..read]).await.is_err() {
                return;
            }
            let _ = client.flush().await;
        }
        let _ = client.shutdown().await;
    }
}

async fn read(client: &mut (impl AsyncRead + Unpin)) -> Option<ProxiedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let long = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is = name.eq_ignore_ascii_case("content-length");
        is.then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = vec![0; long.unwrap_or(0)];
    client.read_exact(&mut body).await.ok()?;
    Some(ProxiedRequest {
        head,
        method,
        target,
        body,
    })
}

/// What stands at an address of these hosts.
fn page(host: &str, path: &str) -> Option<String> {
    let issuer = "https://guarded.test";
    let body = match (host, path) {
        ("guarded.test", "/.well-known/oauth-protected-resource/mcp") => {
            json!({"resource": "https://guarded.test/mcp", "authorization_servers": [issuer]})
        }
        ("guarded.test", "/.well-known/oauth-authorization-server") => json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["client_credentials"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
        }),
        ("guarded.test", "/token") => {
            json!({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})
        }
        ("registry.test", path) if path.starts_with("/v0.1/servers?") => json!({
            "servers": [{
                "server": {"name": "io.github.acme/weather", "description": "weather", "version": "1.0.0"},
                "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active"}},
            }],
            "metadata": {"count": 1},
        }),
        _ => return None,
    };
    Some(body.to_string())
}
