//! The destinations that a sandboxed server may connect to (`[servers.sandbox] egress`), and what it requests of the
//! kernel's proxy (RFC 9110 section 9.3.6, RFC 9112 section 3.2).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest name of a host, in bytes (RFC 1035).
const HOST_BYTES_MAX: usize = 253;
/// The usual port of plain HTTP.
const HTTP_PORT: u16 = 80;
/// Headers that are between the server and the proxy alone.
const HOP_HEADERS: [&str; 3] = ["connection", "keep-alive", "te"];

/// A destination: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressRule {
    host: EgressHost,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EgressHost {
    Address(IpAddr),
    Name(String),
    /// All names that end in a dot and this name.
    Below(String),
}

/// Which addresses an allowed destination may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressScope {
    /// Those of the public network: whoever owns a name can let it lead anywhere.
    Public,
    /// The one that the operator wrote.
    Written,
}

/// Why a text is no destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressRuleError {
    /// It has another form.
    #[error(
        "a destination is HOST:PORT, like \"api.github.com:443\", \"*.example.com:443\" or \"10.0.0.5:5432\""
    )]
    Malformed,
    /// Names lead to public addresses only.
    #[error(
        "names lead to public addresses only; for this machine write its address, like \"127.0.0.1:8080\""
    )]
    ThisMachine,
}

impl FromStr for EgressRule {
    type Err = EgressRuleError;

    fn from_str(text: &str) -> Result<Self, EgressRuleError> {
        let (host, port) = split_authority(text).ok_or(EgressRuleError::Malformed)?;
        let port = port
            .filter(|port| *port > 0)
            .ok_or(EgressRuleError::Malformed)?;
        if let Ok(address) = host.parse() {
            let host = EgressHost::Address(address);
            return Ok(Self { host, port });
        }
        let (is_suffix, name) = match host.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, host.as_str()),
        };
        if name == "localhost" || name.ends_with(".localhost") {
            return Err(EgressRuleError::ThisMachine);
        }
        // All digits and dots would be another notation of an address.
        let is_numeric = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        if !is_host_name(name) || is_numeric {
            return Err(EgressRuleError::Malformed);
        }
        let name = name.to_owned();
        let host = if is_suffix {
            EgressHost::Below(name)
        } else {
            EgressHost::Name(name)
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.host {
            EgressHost::Address(IpAddr::V6(ip)) => write!(f, "[{ip}]:{port}"),
            EgressHost::Address(ip) => write!(f, "{ip}:{port}"),
            EgressHost::Name(name) => write!(f, "{name}:{port}"),
            EgressHost::Below(name) => write!(f, "*.{name}:{port}"),
        }
    }
}

/// A host in lower case without brackets and without a last dot, and a port if there is one.
fn split_authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest)
        }
        None => match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        Some(port) if !port.starts_with('+') => Some(port.parse().ok()?),
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port))
}

/// An address or a name, and nothing that another parser could end earlier, such as `a#.example.com`.
fn is_host(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok() || is_host_name(host)
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    name.len() <= HOST_BYTES_MAX && name.split('.').all(is_label)
}

impl EgressRule {
    /// Whether it is an address of this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        matches!(self.host, EgressHost::Address(ip) if ip.is_loopback())
    }
}

/// Which addresses this destination may have; `None` if no rule allows it.
#[must_use]
pub fn find_scope(rules: &[EgressRule], destination: &Destination) -> Option<EgressScope> {
    let Destination { host, port } = destination;
    let address: Option<IpAddr> = host.parse().ok();
    rules
        .iter()
        .filter(|rule| rule.port == *port)
        .find_map(|rule| match &rule.host {
            EgressHost::Address(ip) => (address == Some(*ip)).then_some(EgressScope::Written),
            EgressHost::Name(name) => (host == name).then_some(EgressScope::Public),
            EgressHost::Below(name) => {
                let before = host.strip_suffix(name.as_str());
                let is_below =
                    before.is_some_and(|before| before.len() > 1 && before.ends_with('.'));
                (is_below && address.is_none()).then_some(EgressScope::Public)
            }
        })
}

/// Where a server wants to connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// In lower case, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// What a server requests of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyRequest {
    /// Where it leads.
    pub destination: Destination,
    /// What is sent there first: nothing for a tunnel, else the head of one request whose answer closes the connection.
    pub head: Vec<u8>,
    /// Whether it is a tunnel (CONNECT).
    pub is_tunnel: bool,
}

/// Parses the head of a request to a proxy, with the empty line at its end; `None` if it is none.
#[must_use]
pub fn parse_proxy_request(head: &[u8]) -> Option<ProxyRequest> {
    let text = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") {
        return None;
    }
    if method == "CONNECT" {
        let (host, port) = split_authority(target).filter(|(host, _)| is_host(host))?;
        let destination = Destination { host, port: port? };
        return Some(ProxyRequest {
            destination,
            head: Vec::new(),
            is_tunnel: true,
        });
    }
    let (scheme, rest) = target.split_once("://")?;
    let path = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path);
    if !scheme.eq_ignore_ascii_case("http") || authority.contains('@') || method.is_empty() {
        return None;
    }
    let (host, port) = split_authority(authority).filter(|(host, _)| is_host(host))?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut rewritten = format!("{method} {slash}{path} {version}\r\n");
    for line in lines {
        // A line alone, or a name before a colon: nothing that two readers read differently.
        let (name, _) = line.split_once(':')?;
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) || line.contains(['\r', '\n']) {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        if !lower.starts_with("proxy-") && !HOP_HEADERS.contains(&lower.as_str()) {
            rewritten += line;
            rewritten += "\r\n";
        }
    }
    rewritten += "Connection: close\r\n\r\n";
    Some(ProxyRequest {
        destination: Destination {
            host,
            port: port.unwrap_or(HTTP_PORT),
        },
        head: rewritten.into_bytes(),
        is_tunnel: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<EgressRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn to(host: &str, port: u16) -> Destination {
        Destination {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn rules_are_hosts_with_ports() {
        for (text, want) in [
            ("API.GitHub.com.:443", "api.github.com:443"),
            ("*.example.com:8443", "*.example.com:8443"),
            ("10.0.0.5:5432", "10.0.0.5:5432"),
            ("[::1]:80", "[::1]:80"),
            ("intranet:80", "intranet:80"),
        ] {
            let rule: EgressRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), want);
        }
        for bad in [
            "",
            "api.github.com",
            ":443",
            "a:0",
            "a:65536",
            "a:+4",
            "https://a:443",
            "a b:1",
            "*:443",
            "*.:443",
            "a.*.b:443",
            "2130706433:80",
            "127.1:80",
            "[::1:80",
            "::1:80",
            "a..b:1",
            "user@a:1",
        ] {
            assert_eq!(
                bad.parse::<EgressRule>(),
                Err(EgressRuleError::Malformed),
                "{bad}"
            );
        }
        for local in ["localhost:80", "*.localhost:80", "a.localhost:80"] {
            assert_eq!(
                local.parse::<EgressRule>(),
                Err(EgressRuleError::ThisMachine)
            );
        }
    }

    #[test]
    fn a_destination_needs_a_rule_with_its_host_and_port() {
        let rules = rules(&["api.github.com:443", "*.example.com:443", "10.0.0.5:5432"]);
        for (host, port, want) in [
            ("api.github.com", 443, Some(EgressScope::Public)),
            ("api.github.com", 80, None),
            ("github.com", 443, None),
            ("xapi.github.com", 443, None),
            ("a.example.com", 443, Some(EgressScope::Public)),
            ("a.b.example.com", 443, Some(EgressScope::Public)),
            ("example.com", 443, None),
            (".example.com", 443, None),
            ("evilexample.com", 443, None),
            ("10.0.0.5", 5432, Some(EgressScope::Written)),
            ("10.0.0.6", 5432, None),
            ("167772165", 5432, None),
            ("0x0a.0.0.5", 5432, None),
            ("::ffff:10.0.0.5", 5432, None),
        ] {
            assert_eq!(find_scope(&rules, &to(host, port)), want, "{host}:{port}");
        }
    }

    #[test]
    fn a_tunnel_names_its_destination() {
        let tunnel = |target: &str| {
            let head = format!("CONNECT {target} HTTP/1.1\r\nHost: elsewhere\r\n\r\n");
            parse_proxy_request(head.as_bytes()).map(|it| it.destination)
        };
        assert_eq!(
            tunnel("API.github.com.:443"),
            Some(to("api.github.com", 443))
        );
        assert_eq!(tunnel("[::1]:80"), Some(to("::1", 80)));
        for bad in [
            "api.github.com",
            "a b:443",
            "",
            "http://a:443/",
            "a:443 b:443",
            "evil.test#.example.com:443",
            "evil.test?.example.com:443",
            "evil.test/.example.com:443",
            "evil.test%2f.example.com:443",
            "evil@a.example.com:443",
            "[::1].example.com:443",
            "[fe80::1%lo]:443",
        ] {
            assert_eq!(tunnel(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_is_sent_on_as_one_of_its_own() {
        let head = b"POST http://Example.com/a?b HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: x\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n";
        let request = parse_proxy_request(head).unwrap();
        assert_eq!(request.destination, to("example.com", 80));
        assert_eq!(
            String::from_utf8(request.head).unwrap(),
            "POST /a?b HTTP/1.1\r\nHost: example.com\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        );
        for bad in [
            &b"GET /local HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"GET https://a/ HTTP/1.1\r\n\r\n",
            b"GET http://u@a/ HTTP/1.1\r\n\r\n",
            b"GET http://evil.test\\.example.com/ HTTP/1.1\r\n\r\n",
            b"GET http://a/ HTTP/2\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\n folded: x\r\n\r\n",
            b"GET http://a/ HTTP/1.1\r\nA: b\r\n",
        ] {
            assert_eq!(parse_proxy_request(bad), None, "{bad:?}");
        }
    }
}
