//! URLs whose answers cannot be changed in transit.

use super::client::parse_url;

/// True for https, and for http to this machine: keys that can be changed in transit are worthless.
#[must_use]
pub fn is_safe_url(url: &str) -> bool {
    let Ok(url) = parse_url(url) else {
        return false;
    };
    let loopback = |host: &str| {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || bare
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback())
    };
    url.scheme_str() == Some("https") || url.host().is_some_and(loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fetched_only_where_they_cannot_be_changed_in_transit() {
        for safe in [
            "https://a.example/k",
            "http://127.0.0.1:1/k",
            "http://[::1]/k",
            "http://localhost/k",
        ] {
            assert!(is_safe_url(safe), "{safe}");
        }
        for not in [
            "http://a.example/k",
            "http://localhost.a.example/k",
            "file:///k",
            "k",
            "http://127.0.0.1@a.example/",
        ] {
            assert!(!is_safe_url(not), "{not}");
        }
    }
}
