//! Redaction of secrets in URLs, for display and logs.

/// Redacts the credentials and the query values of a URL.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (rest_of_url, query) = match rest.split_once('?') {
        Some((rest_of_url, query)) => (rest_of_url, Some(query)),
        None => (rest, None),
    };
    // Without a scheme the end of the host is ambiguous.
    let end = rest_of_url.find('/').filter(|_| !scheme.is_empty());
    let (authority, path) = rest_of_url.split_at(end.unwrap_or(rest_of_url.len()));
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
    fn credentials_and_query_values_are_redacted() {
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
