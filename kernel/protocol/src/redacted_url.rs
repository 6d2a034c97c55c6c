//! URLs without their secrets, to be shown and logged.

/// A URL without what opens it to whoever reads it: its credentials and the values of its query.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (rest, None),
    };
    // Without a scheme nobody can say where its host ends.
    let end = place.find('/').filter(|_| !scheme.is_empty());
    let (authority, path) = place.split_at(end.unwrap_or(place.len()));
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => authority.to_owned(),
    };
    let hidden = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => format!("{name}=***"),
        None => "***".to_owned(),
    };
    let query = query.map(|query| query.split('&').map(hidden).collect::<Vec<_>>());
    let query = query.map(|pairs| format!("?{}", pairs.join("&")));
    format!("{scheme}{host}{path}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_what_opens_them() {
        for (url, want) in [
            ("https://h/mcp", "https://h/mcp"),
            (
                "https://u:pw@h:1/a@b?k=v&x",
                "https://***@h:1/a@b?k=***&***",
            ),
            ("u:pw/x@h", "***@h"),
            ("${URL}", "${URL}"),
        ] {
            assert_eq!(redact_url(url), want);
        }
    }
}
