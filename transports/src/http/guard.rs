//! Guards a listener against DNS rebinding and foreign web pages.

use http::header::{HOST, HeaderValue, ORIGIN};
use http::{HeaderMap, HeaderName, Uri};

/// The names that every machine has for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Most bytes of a rejected value that the rejection repeats.
const QUOTED: usize = 100;

/// The hosts that a listener answers to, besides loopback, and the origins whose pages it admits, besides its own: another
/// port of this machine is as foreign as any page.
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request was rejected with 403.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardRejection {
    /// The request names no host.
    #[error("the request names no host")]
    NoHost,
    /// A header field that may occur once occurs several times.
    #[error("the request names more than one {0}")]
    RepeatedHeader(HeaderName),
    /// The host is not ours: DNS rebinding, or a name that was not configured.
    #[error("host {0:?} is neither loopback nor among the configured hosts")]
    Host(String),
    /// Pages of this origin are not allowed.
    #[error("origin {0:?} is neither this door's own nor among `allowed_origins` of [http]")]
    Origin(String),
}

impl AllowList {
    /// Loopback and these. A host is `name` (any port) or `name:port`, IPv6 in brackets; an origin
    /// is `scheme://host[:port]`, as a browser sends it.
    #[must_use]
    pub fn new(
        hosts: impl IntoIterator<Item = String>,
        origins: impl IntoIterator<Item = String>,
    ) -> Self {
        let plain = |origin: String| origin.trim_end_matches('/').to_owned();
        Self {
            hosts: hosts.into_iter().collect(),
            origins: origins.into_iter().map(plain).collect(),
        }
    }

    /// Checks the target and the headers of a request.
    ///
    /// # Errors
    /// [`GuardRejection`], whose text may be sent to the caller.
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), GuardRejection> {
        let host = single_value(headers, &HOST)?;
        let authority = target.authority().map(http::uri::Authority::as_str);
        if host.is_none() && authority.is_none() {
            return Err(GuardRejection::NoHost);
        }
        for name in [host, authority].into_iter().flatten() {
            if !self.has_host(name) {
                return Err(GuardRejection::Host(quote(name)));
            }
        }
        let own = authority.or(host).unwrap_or("");
        match single_value(headers, &ORIGIN)? {
            Some(origin) if !self.has_origin(origin, own) => {
                Err(GuardRejection::Origin(quote(origin)))
            }
            _ => Ok(()),
        }
    }

    /// The origin of a request by a page at a configured origin.
    pub(super) fn configured_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?;
        self.is_configured_origin(text).then(|| origin.clone())
    }

    fn is_configured_origin(&self, origin: &str) -> bool {
        let mut known = self.origins.iter();
        known.any(|known| known.eq_ignore_ascii_case(origin))
    }

    fn has_host(&self, authority: &str) -> bool {
        is_loopback(authority) || self.is_configured_host(authority)
    }

    /// Whether a host is configured, by its name alone or with this port.
    #[must_use]
    pub fn is_configured_host(&self, authority: &str) -> bool {
        let same = |host: &String| {
            host.eq_ignore_ascii_case(authority)
                || host_name(authority).is_some_and(|name| host.eq_ignore_ascii_case(name))
        };
        self.hosts.iter().any(same)
    }

    /// `own` is the requested host and port: the origin of this listener's own pages.
    fn has_origin(&self, origin: &str, own: &str) -> bool {
        let host = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let is_own = |host: &str| is_loopback(host) && host.eq_ignore_ascii_case(own);
        host.is_some_and(is_own) || self.is_configured_origin(origin)
    }
}

/// Whether this is a loopback name, with or without a port.
#[must_use]
pub fn is_loopback(authority: &str) -> bool {
    let own = |name: &str| LOOPBACK.iter().any(|own| own.eq_ignore_ascii_case(name));
    host_name(authority).is_some_and(own)
}

/// The name of `name[:port]`; `None` if the port is malformed.
fn host_name(authority: &str) -> Option<&str> {
    let end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[end..].find(':') else {
        return Some(authority);
    };
    let (name, port) = authority.split_at(end + colon);
    let is_port = port[1..].bytes().all(|b| b.is_ascii_digit());
    is_port.then_some(name)
}

/// The value of a field that may occur once; a value that is not text matches no name.
fn single_value<'a>(
    headers: &'a HeaderMap,
    field: &HeaderName,
) -> Result<Option<&'a str>, GuardRejection> {
    let mut values = headers.get_all(field).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(GuardRejection::RepeatedHeader(field.clone()));
    }
    Ok(first.map(|value| value.to_str().unwrap_or("?")))
}

fn quote(value: &str) -> String {
    value.chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> AllowList {
        let hosts = ["Gateway.example", "[fd00::1]:8443"].map(str::to_owned);
        AllowList::new(hosts, ["https://app.example/".to_owned()])
    }

    fn ask(allow: &AllowList, host: &str, origin: Option<&str>) -> Result<(), GuardRejection> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        allow.check(&Uri::from_static("/mcp"), &headers)
    }

    /// MCP-080: a name that resolves to this machine by DNS rebinding is rejected.
    #[test]
    fn only_our_own_hosts_are_accepted() {
        for host in [
            "localhost",
            "LOCALHOST:7332",
            "127.0.0.1",
            "127.0.0.1:7332",
            "[::1]",
            "[::1]:7332",
            "gateway.example",
            "gateway.EXAMPLE:443",
            "[fd00::1]:8443",
        ] {
            assert_eq!(ask(&configured(), host, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7332",
            "localhost.evil.example",
            "evil.example:localhost",
            "localhost@evil.example",
            "localhost:80@evil.example",
            "user@localhost",
            "127.0.0.1.evil.example",
            "[::2]:7332",
            "[::1]evil",
            "[fd00::1]",
            "[fd00::1]:9",
            "",
        ] {
            let denied = Err(GuardRejection::Host(host.to_owned()));
            assert_eq!(ask(&configured(), host, None), denied, "{host}");
        }
    }

    /// MCP-080: pages of foreign origins are rejected, also those of other ports of this machine.
    #[test]
    fn only_our_own_origins_are_accepted() {
        for (host, origin) in [
            ("localhost", "http://localhost"),
            ("localhost", "https://LOCALHOST"),
            ("127.0.0.1:7332", "http://127.0.0.1:7332"),
            ("[::1]:7332", "http://[::1]:7332"),
            ("127.0.0.1:7332", "https://app.example"),
        ] {
            assert_eq!(ask(&configured(), host, Some(origin)), Ok(()), "{origin}");
        }
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://127.0.0.1:6274",
            "http://[::1]:1",
            "https://evil.example",
            "null",
            "",
            "http://app.example",
            "https://app.example:8443",
            "https://app.example.evil.example",
            "http://localhost.evil.example",
            "http://localhost/",
            "file://localhost",
            "localhost",
        ] {
            let denied = Err(GuardRejection::Origin(origin.to_owned()));
            assert_eq!(
                ask(&configured(), "localhost", Some(origin)),
                denied,
                "{origin}"
            );
        }
    }

    /// MCP-080: HTTP/2 and absolute targets carry the host in the target; it must agree.
    #[test]
    fn the_host_in_the_target_is_checked_too() {
        let allow = AllowList::default();
        let target = |text: &'static str| Uri::from_static(text);
        let none = HeaderMap::new();
        assert_eq!(
            allow.check(&target("http://localhost:1/mcp"), &none),
            Ok(())
        );
        assert_eq!(
            allow.check(&target("/mcp"), &none),
            Err(GuardRejection::NoHost)
        );
        let mut own = HeaderMap::new();
        own.insert(HOST, HeaderValue::from_static("localhost"));
        let foreign = allow.check(&target("http://evil.example/mcp"), &own);
        assert_eq!(
            foreign,
            Err(GuardRejection::Host("evil.example".to_owned()))
        );
    }

    #[test]
    fn a_repeated_field_is_rejected() {
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost"));
        headers.append(HOST, HeaderValue::from_static("evil.example"));
        let denied = AllowList::default().check(&Uri::from_static("/"), &headers);
        assert_eq!(denied, Err(GuardRejection::RepeatedHeader(HOST)));
    }

    #[test]
    fn a_rejection_repeats_at_most_a_line() {
        let long = "x".repeat(5000);
        let denied = ask(&AllowList::default(), &long, None).unwrap_err();
        assert!(denied.to_string().len() < 250);
    }
}
