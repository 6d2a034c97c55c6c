//! The content security policy of an app's frame in the console (SEP-1865, "Host Behavior"): what the resource declares, and
//! by default nothing.

use serde::Deserialize;

/// Most origins of one directive; the rest counts as undeclared.
const ORIGINS_MAX: usize = 32;
/// Longest origin, in bytes: a scheme, the longest name of DNS, and a port.
const ORIGIN_LEN_MAX: usize = 272;

/// `_meta.ui.csp` of a UI resource. What is malformed counts as absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeclaredCsp {
    connect_domains: Vec<String>,
    resource_domains: Vec<String>,
    frame_domains: Vec<String>,
    base_uri_domains: Vec<String>,
}

/// The policy for a frame whose resource declares this JSON. `own` is the host at which the console is reached: no app
/// reaches it.
///
/// The document has an origin that no other one has (`sandbox`), and is framed by the console alone.
#[must_use]
pub fn content_security_policy(declared: &str, own: &str) -> String {
    let declared: DeclaredCsp = serde_json::from_str(declared).unwrap_or_default();
    let own = own.rsplit_once(':').map_or(own, |(host, _)| host);
    let list = |always: &str, origins: &[String]| {
        let origins = origins.iter().take(ORIGINS_MAX);
        let origins = origins.map(|origin| origin.strip_suffix('/').unwrap_or(origin));
        let origins = origins.filter(|origin| is_public_origin(origin, own));
        let always = Some(always).filter(|always| !always.is_empty());
        let all: Vec<&str> = always.into_iter().chain(origins).collect();
        match all[..] {
            [] => "'none'".to_owned(),
            _ => all.join(" "),
        }
    };
    let resources = &declared.resource_domains;
    let (inline, data) = (list("'unsafe-inline'", resources), list("data:", resources));
    let connect = list("", &declared.connect_domains);
    let frames = list("", &declared.frame_domains);
    let base = list("", &declared.base_uri_domains);
    format!(
        "default-src 'none'; script-src {inline}; style-src {inline}; img-src {data}; font-src {data}; media-src {data}; \
         connect-src {connect}; frame-src {frames}; base-uri {base}; object-src 'none'; form-action 'none'; \
         webrtc 'block'; frame-ancestors 'self'; sandbox allow-scripts"
    )
}

/// Whether this is the origin of a public host other than `own`, with TLS: `https://*.example.com:8443`. Machines of the
/// network that the browser is in have addresses, or names that are none of DNS.
fn is_public_origin(origin: &str, own: &str) -> bool {
    let scheme = ["https://", "wss://"];
    let mut rest = scheme
        .iter()
        .filter_map(|scheme| origin.strip_prefix(scheme));
    let Some(authority) = rest.next().filter(|_| origin.len() <= ORIGIN_LEN_MAX) else {
        return false;
    };
    let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    let is_label = |label: &str| {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.bytes().all(is_plain)
    };
    let is_top = |label: &str| {
        let is_name = label.bytes().any(|b| b.is_ascii_alphabetic());
        is_name && !label.eq_ignore_ascii_case("localhost")
    };
    let mut labels = name.split('.');
    let (lower, own) = (name.to_ascii_lowercase(), own.to_ascii_lowercase());
    let is_own = own == lower || (host.starts_with('*') && own.ends_with(&format!(".{lower}")));
    is_port
        && labels.clone().all(is_label)
        && labels.clone().count() > 1
        && labels.next_back().is_some_and(is_top)
        && !is_own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(policy: &str, name: &str) -> String {
        let mut all = policy.split("; ");
        let value = all.find_map(|directive| directive.strip_prefix(name));
        value
            .unwrap_or_else(|| panic!("{name} in {policy}"))
            .trim()
            .to_owned()
    }

    /// EXT-035: without a declaration, and with a malformed one, an app reaches nothing.
    #[test]
    fn undeclared_origins_are_closed() {
        for nothing in [
            "",
            "{}",
            "[]",
            "7",
            r#"{"connectDomains":"https://a.example"}"#,
        ] {
            let policy = content_security_policy(nothing, "localhost:7332");
            assert_eq!(directive(&policy, "default-src"), "'none'");
            assert_eq!(directive(&policy, "script-src"), "'unsafe-inline'");
            assert_eq!(directive(&policy, "img-src"), "data:");
            for closed in ["connect-src", "frame-src", "base-uri", "object-src"] {
                assert_eq!(directive(&policy, closed), "'none'", "{nothing}");
            }
            assert_eq!(directive(&policy, "sandbox"), "allow-scripts");
        }
    }

    /// EXT-035: each directive has what is declared for it, and no more.
    #[test]
    fn declared_origins_are_open() {
        let declared = r#"{"connectDomains":["https://api.example","wss://live.example:8443/"],
            "resourceDomains":["https://*.cdn.example"],"frameDomains":["https://f.example"],"other":1}"#;
        let policy = content_security_policy(declared, "localhost:7332");
        let connect = "https://api.example wss://live.example:8443";
        assert_eq!(directive(&policy, "connect-src"), connect);
        let script = "'unsafe-inline' https://*.cdn.example";
        assert_eq!(directive(&policy, "script-src"), script);
        assert_eq!(directive(&policy, "frame-src"), "https://f.example");
        assert_eq!(directive(&policy, "base-uri"), "'none'");
    }

    /// EXT-035: no text of a server becomes another directive or a keyword, and none opens the kernel or the network that
    /// the browser is in.
    #[test]
    fn other_sources_are_dropped() {
        for source in [
            "*",
            "https:",
            "data:",
            "'self'",
            "'unsafe-eval'",
            "https://*",
            "https://*.com.",
            "https://a.example; script-src *",
            "https://a.example https://b.example",
            "https://a.example/path",
            "https://a.example\nx",
            "https://u@a.example",
            "https://a.*.example",
            "http://a.example",
            "https://localhost:7332",
            "https://a.localhost",
            "https://127.0.0.1",
            "https://192.168.1.2:443",
            "https://[::1]",
            "https://router",
            "https://box.example",
            "https://BOX.example:9",
            "https://*.example",
            "https://a.example:",
            "https://a.example:123456",
        ] {
            let declared = serde_json::json!({"connectDomains": [source]}).to_string();
            let policy = content_security_policy(&declared, "box.example:7332");
            assert_eq!(directive(&policy, "connect-src"), "'none'", "{source}");
        }
        let many: Vec<_> = (0..100)
            .map(|at| format!("https://a{at}.example"))
            .collect();
        let declared = serde_json::json!({"connectDomains": many}).to_string();
        let policy = content_security_policy(&declared, "localhost");
        let open = directive(&policy, "connect-src");
        assert_eq!(open.split(' ').count(), ORIGINS_MAX);
    }
}
