//! The OAuth redirect endpoint: a loopback listener that is open while a login waits for the browser.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mgp_engine::servers::login::SignInError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::{Host, Url};

/// The longest head of a request, in bytes: a code and a state have a few hundred.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a connection may stay silent; browsers open some ahead.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a browser may take to read the result page; the login continues without it.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum of simultaneous connections; further ones wait.
const CONNECTIONS_MAX: usize = 16;
/// The path if the entry names none.
const DEFAULT_PATH: &str = "/callback";

/// A listener on loopback.
#[derive(Debug)]
pub struct CallbackListener {
    listener: TcpListener,
    url: String,
    path: String,
}

impl CallbackListener {
    /// Listens at the address of the entry; else at the previous redirect address, which the client is
    /// registered with, or on a free port.
    ///
    /// # Errors
    /// The address of the entry is not a loopback address, or is in use.
    pub async fn bind(configured: Option<&str>, before: Option<&str>) -> io::Result<Self> {
        if let Some(text) = configured {
            let (url, at) = parse_loopback(text).ok_or_else(|| {
                let why = format!("`callback` is {text:?}, and no address of this machine such as http://127.0.0.1:7333/callback");
                io::Error::new(io::ErrorKind::InvalidInput, why)
            })?;
            let listener = TcpListener::bind(at).await;
            let listener =
                listener.map_err(|e| io::Error::new(e.kind(), format!("{text}: {e}")))?;
            let path = url.path().to_owned();
            return Ok(Self {
                listener,
                url: text.to_owned(),
                path,
            });
        }
        let port = before
            .and_then(parse_loopback)
            .map_or(0, |(_, at)| at.port());
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
        {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(any).await?,
        };
        let port = listener.local_addr()?.port();
        Ok(Self {
            listener,
            url: format!("http://127.0.0.1:{port}{DEFAULT_PATH}"),
            path: DEFAULT_PATH.to_owned(),
        })
    }

    /// Uses a separate redirect URL for this issuer: at another issuer, a client of this kernel is registered
    /// with another URL (RFC 9700, 4.4).
    pub(crate) fn set_issuer(&mut self, issuer: &str) {
        let digest = blake3::hash(issuer.as_bytes()).to_hex();
        self.path = format!("{DEFAULT_PATH}/{}", &digest[..16]);
        let begin = self.url.rfind(DEFAULT_PATH).unwrap_or(self.url.len());
        self.url.truncate(begin);
        self.url.push_str(&self.path);
    }

    /// The redirect URL.
    #[must_use]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the response of this login, as `judge` decides, and shows the browser the result. Responses of
    /// other logins and unrelated requests are answered and ignored.
    ///
    /// # Errors
    /// The error that ends the login.
    pub async fn wait_for_code(
        &self,
        parse_response: impl Fn(&str) -> Result<String, SignInError>,
    ) -> Result<String, SignInError> {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if open.len() < CONNECTIONS_MAX => {
                    if let Ok((stream, _)) = accepted {
                        open.push(self.serve(stream, &parse_response));
                    }
                }
                Some(served) = open.next() => {
                    if let Some(verdict) = served {
                        return verdict;
                    }
                }
            }
        }
    }

    async fn serve(
        &self,
        mut stream: TcpStream,
        parse_response: &impl Fn(&str) -> Result<String, SignInError>,
    ) -> Option<Result<String, SignInError>> {
        let head = timeout(READ_TIMEOUT, read_head(&mut stream)).await.ok()??;
        let query = self.parse_query(&head);
        let verdict = query.map(parse_response);
        let (status, words) = match &verdict {
            None => ("404 Not Found", "There is nothing here."),
            Some(Err(SignInError::UnknownState)) => (
                "400 Bad Request",
                "This response belongs to no pending login. The place where you started the login shows the current one.",
            ),
            Some(Err(_)) => (
                "400 Bad Request",
                "The login failed. The reason is shown where you started it.",
            ),
            Some(Ok(_)) => (
                "200 OK",
                "mgp has the answer. You can close this tab; the result is shown where you started the login.",
            ),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
             cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{words}\n",
            words.len() + 1
        );
        let telling = async {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        };
        let _ = timeout(RESPONSE_TIMEOUT, telling).await;
        verdict.filter(|verdict| *verdict != Err(SignInError::UnknownState))
    }

    /// The query of a GET for the redirect path.
    fn parse_query<'h>(&self, head: &'h str) -> Option<&'h str> {
        let mut words = head.lines().next()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?')?;
        (method == "GET" && path == self.path).then_some(query)
    }
}

/// The head of a request; `None` if it is too long or incomplete.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut part = [0; 2048];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await.ok().filter(|&read| read > 0)?;
        bytes.extend_from_slice(&part[..read]);
        if bytes.len() > HEAD_BYTES_MAX {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

fn parse_loopback(text: &str) -> Option<(Url, SocketAddr)> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| url.scheme() == "http" && url.query().is_none())?;
    let ip: IpAddr = match url.host()? {
        Host::Domain("localhost") => Ipv4Addr::LOCALHOST.into(),
        Host::Domain(_) => return None,
        Host::Ipv4(ip) => ip.into(),
        Host::Ipv6(ip) => ip.into(),
    };
    let port = url.port().unwrap_or(80);
    ip.is_loopback()
        .then(|| (url, SocketAddr::from((ip, port))))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(url: &str, request: &str) -> String {
        let at = parse_loopback(url).unwrap().1;
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn parse_response(query: &str) -> Result<String, SignInError> {
        match query {
            "code=c&state=s" => Ok("c".to_owned()),
            "error=x&state=s" => Err(SignInError::Rejected("x".into())),
            _ => Err(SignInError::UnknownState),
        }
    }

    #[tokio::test]
    async fn only_response_of_this_login_ends_wait() {
        let listener = CallbackListener::bind(None, None).await.unwrap();
        let url = listener.url().to_owned();
        let requests = async {
            // A silent connection, which browsers open ahead, does not block others.
            let _silent = TcpStream::connect(parse_loopback(&url).unwrap().1)
                .await
                .unwrap();
            for (request, want) in [
                ("GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
                ("POST /callback?code=c&state=s HTTP/1.1\r\n\r\n", "404"),
                (
                    "GET /callback?code=evil&state=other HTTP/1.1\r\n\r\n",
                    "400",
                ),
                (
                    "GET /callback?code=c&state=s HTTP/1.1\r\nhost: x\r\n\r\n",
                    "200",
                ),
            ] {
                let answer = ask(&url, request).await;
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {want}")),
                    "{request}: {answer}"
                );
            }
        };
        let (code, ()) = tokio::join!(listener.wait_for_code(parse_response), requests);
        assert_eq!(code.unwrap(), "c");
        let failing = ask(&url, "GET /callback?error=x&state=s HTTP/1.1\r\n\r\n");
        let (code, answer) = tokio::join!(listener.wait_for_code(parse_response), failing);
        assert_eq!(code, Err(SignInError::Rejected("x".into())));
        assert!(
            answer.contains("reason is shown where you started"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn issuers_have_separate_redirect_urls() {
        let mut listener = CallbackListener::bind(None, None).await.unwrap();
        let plain = listener.url().to_owned();
        listener.set_issuer("https://one");
        let one = listener.url().to_owned();
        listener.set_issuer("https://two");
        let two = listener.url().to_owned();
        assert!(one.starts_with(&plain) && two.starts_with(&plain) && one != two);
        let path = |url: &str| {
            url.split_once("127.0.0.1:")
                .unwrap()
                .1
                .split_once('/')
                .unwrap()
                .1
                .to_owned()
        };
        let requests = async {
            for (path, want) in [(path(&one), "404"), (path(&two), "200")] {
                let request = format!("GET /{path}?code=c&state=s HTTP/1.1\r\n\r\n");
                let answer = ask(&plain, &request).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {want}")), "{answer}");
            }
        };
        let (code, ()) = tokio::join!(listener.wait_for_code(parse_response), requests);
        assert_eq!(code.unwrap(), "c");
        drop(listener);
        let mut again = CallbackListener::bind(None, Some(&two)).await.unwrap();
        again.set_issuer("https://two");
        assert_eq!(again.url(), two, "the same again");
    }

    #[tokio::test]
    async fn redirect_url_is_loopback_and_reused() {
        for bad in [
            "http://0.0.0.0:1/x",
            "https://127.0.0.1:1/x",
            "http://a.example/x",
            "x",
            "http://127.0.0.1:1/x?y",
        ] {
            assert!(
                CallbackListener::bind(Some(bad), None).await.is_err(),
                "{bad}"
            );
        }
        let first = CallbackListener::bind(None, None).await.unwrap();
        let url = first.url().to_owned();
        let second = CallbackListener::bind(None, Some(&url)).await.unwrap();
        assert_ne!(second.url(), url, "it is taken");
        drop(first);
        let again = CallbackListener::bind(None, Some(&url)).await.unwrap();
        assert_eq!(again.url(), url);
    }
}
