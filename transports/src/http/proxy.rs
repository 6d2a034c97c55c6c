//! Settings of outbound connections: direct or through a proxy, and the trusted authorities.

mod exceptions;
mod tunnel;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::uri::Scheme;
use http::{HeaderValue, Uri};

use super::tls::Tls;

pub use self::exceptions::ProxyExceptions;
pub(super) use self::tunnel::{explain_refusal, open_tunnel};

/// The default port of a proxy.
const PORT: u16 = 80;

/// The proxy of an HTTP client, `http://[USER:PASSWORD@]HOST[:PORT]`. Neither its text form nor its debug form
/// shows the credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

/// An unusable proxy address; never repeats the address, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyAddressError {
    /// Another kind of proxy.
    #[error("a proxy reached by {0}:// is not supported; write http://HOST:PORT")]
    UnsupportedScheme(String),
    /// It is no address.
    #[error(
        "it is no address of a proxy; write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
    )]
    InvalidAddress,
}

/// The proxies, and the addresses that are reached directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyRules {
    /// For `http://`.
    pub http: Option<Result<ProxyAddress, ProxyAddressError>>,
    /// For `https://`.
    pub https: Option<Result<ProxyAddress, ProxyAddressError>>,
    /// Addresses that are reached directly.
    pub exceptions: ProxyExceptions,
}

/// The settings of a client; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Outbound {
    /// The trusted authorities.
    pub tls: Tls,
    /// The proxies.
    pub proxies: Arc<ProxyRules>,
}

impl From<Tls> for Outbound {
    fn from(tls: Tls) -> Self {
        Self {
            tls,
            proxies: Arc::default(),
        }
    }
}

impl ProxyAddress {
    /// Parses an address as a person writes it; the default scheme is http. In the credentials `%XX` stands for a byte.
    ///
    /// # Errors
    /// [`ProxyAddressError`].
    pub fn parse(text: &str) -> Result<Self, ProxyAddressError> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        if !scheme.eq_ignore_ascii_case("http") {
            let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric());
            return Err(if plain && scheme.len() <= 12 {
                ProxyAddressError::UnsupportedScheme(scheme.to_ascii_lowercase())
            } else {
                ProxyAddressError::InvalidAddress
            });
        }
        let (credentials, address) = match rest.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, rest),
        };
        let url: Uri = format!("http://{address}")
            .parse()
            .map_err(|_| ProxyAddressError::InvalidAddress)?;
        let host = url.host().filter(|host| !host.is_empty());
        let (Some(host), "/") = (host, url.path()) else {
            return Err(ProxyAddressError::InvalidAddress);
        };
        let authorization = credentials.map(authorization).transpose()?;
        Ok(Self {
            host: host.to_owned(),
            port: url.port_u16().unwrap_or(PORT),
            authorization,
        })
    }

    /// Its host, an IPv6 address in brackets, and its port.
    #[must_use]
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The address as a URL, without credentials.
    pub(super) fn url(&self) -> Uri {
        let url = format!("http://{}:{}/", self.host, self.port);
        url.parse().expect("its parts were taken from a URL")
    }

    /// `Proxy-Authorization` (RFC 9110, section 11.7.2).
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.authorization.as_ref().map_or("", |_| "***@");
        write!(f, "http://{login}{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn authorization(credentials: &str) -> Result<HeaderValue, ProxyAddressError> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut pair = percent_decode(user);
    pair.push(b':');
    pair.extend(percent_decode(password));
    let value = format!("Basic {}", BASE64_STANDARD.encode(pair));
    let mut value = HeaderValue::try_from(value).map_err(|_| ProxyAddressError::InvalidAddress)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Decodes `%XX` (RFC 3986, section 2.1); malformed escapes are unchanged.
#[must_use]
pub fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex(high).zip(hex(low)),
            _ => None,
        };
        match escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

impl ProxyRules {
    /// Reads the variables of curl, npm and Python: `https_proxy`, `http_proxy`, `all_proxy` and `no_proxy`, in lower or
    /// upper case; lower case takes precedence, and an empty text means none.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value_of = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_uppercase()));
        let proxy = |name: &str| {
            let text = value_of(name).or_else(|| value_of("all_proxy"))?;
            (!text.trim().is_empty()).then(|| ProxyAddress::parse(&text))
        };
        Self {
            http: proxy("http_proxy"),
            https: proxy("https_proxy"),
            exceptions: ProxyExceptions::parse_lenient(&value_of("no_proxy").unwrap_or_default()),
        }
    }

    /// The proxy for this address; `None` for one that is reached directly, as is everything on this machine.
    ///
    /// # Errors
    /// The configured proxy cannot be used. Connecting directly instead would reveal the traffic to the network.
    pub fn proxy_for(&self, url: &Uri) -> Result<Option<&ProxyAddress>, &ProxyAddressError> {
        let secure = url.scheme() == Some(&Scheme::HTTPS);
        let Some(proxy) = (if secure { &self.https } else { &self.http }) else {
            return Ok(None);
        };
        let host = normalize_host(url.host().unwrap_or_default());
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        if is_local_host(&host) || self.exceptions.contains(&host, port) {
            return Ok(None);
        }
        proxy.as_ref().map(Some)
    }
}

/// Normalizes a host for comparison: without brackets, final dot, and capitals.
fn normalize_host(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// Normalizes an address for comparison: an IPv4-mapped address becomes IPv4.
fn normalize_ip(ip: IpAddr) -> IpAddr {
    let v4 = |ip: Ipv6Addr| ip.to_ipv4_mapped().map(IpAddr::V4);
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => v4(v6).unwrap_or(ip),
    }
}

fn is_local_host(host: &str) -> bool {
    let ip = host.parse::<IpAddr>().map(normalize_ip);
    host == "localhost"
        || host.ends_with(".localhost")
        || ip.is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(of: &[(&str, &str)]) -> ProxyRules {
        ProxyRules::from_variables(|name| {
            let found = of.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn through(rules: &ProxyRules, url: &str) -> String {
        match rules.proxy_for(&url.parse().unwrap()) {
            Ok(Some(proxy)) => proxy.to_string(),
            Ok(None) => "-".to_owned(),
            Err(bad) => bad.to_string(),
        }
    }

    /// Decision 0056: each scheme has its proxy, in lower or upper case, and this machine has none.
    #[test]
    fn the_proxy_of_an_address() {
        let both = rules(&[
            ("HTTPS_PROXY", "http://one.test:3128"),
            ("http_proxy", "two.test:8080/"),
            ("HTTP_PROXY", "http://not-this.test"),
        ]);
        assert_eq!(through(&both, "https://a.test/x"), "http://one.test:3128");
        assert_eq!(through(&both, "http://a.test/x"), "http://two.test:8080");
        for own in [
            "https://localhost:1/x",
            "https://LOCALHOST./x",
            "https://db.localhost/x",
            "http://127.0.0.2/x",
            "http://[::1]:9/x",
            "http://[::ffff:127.0.0.1]/x",
            "http://0.0.0.0:1/x",
        ] {
            assert_eq!(through(&both, own), "-", "{own}");
        }
        let all = rules(&[("ALL_PROXY", "http://all.test"), ("https_proxy", "")]);
        assert_eq!(through(&all, "http://a.test/"), "http://all.test:80");
        assert_eq!(through(&all, "https://a.test/"), "-");
        assert_eq!(through(&rules(&[]), "https://a.test/"), "-");
    }

    /// Decision 0056: the credentials of a proxy are never displayed, and an unusable proxy is not bypassed.
    #[test]
    fn the_password_of_a_proxy_is_never_displayed() {
        let proxy = ProxyAddress::parse("http://ada:p%40ss:w%2Ford@proxy.test:3128").unwrap();
        let sent = proxy.authorization().unwrap();
        let pair = sent.to_str().unwrap().strip_prefix("Basic ").unwrap();
        assert_eq!(BASE64_STANDARD.decode(pair).unwrap(), b"ada:p@ss:w/ord");
        let all = rules(&[("https_proxy", "http://ada:hush@proxy.test:3128")]);
        for text in [
            format!("{proxy} {proxy:?}"),
            format!("{sent:?}"),
            format!("{all:?}"),
        ] {
            for secret in ["ada", "hush", "p@ss", "p%40ss", pair] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        for (bad, words) in [
            ("socks5://u:hush@x:1", "socks5:// is not supported"),
            ("https://u:hush@x:1", "https:// is not supported"),
            ("http://u:hush@", "no address of a proxy"),
            ("http://x/path:hush", "no address of a proxy"),
            ("hush://evil hush", "hush:// is not supported"),
        ] {
            let wrong = rules(&[("https_proxy", bad)]);
            let told = through(&wrong, "https://a.test/");
            assert!(told.contains(words), "{bad}: {told}");
            assert!(bad.starts_with("hush") || !told.contains("hush"), "{told}");
        }
    }

    #[test]
    fn malformed_escapes_are_unchanged() {
        assert_eq!(percent_decode("%41%2f%zz%4"), b"A/%zz%4");
        assert_eq!(percent_decode("%é%"), "%é%".as_bytes());
    }
}
