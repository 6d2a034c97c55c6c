//! Heuristics for values that look like secrets, which prefer storing a value as a secret over leaving it in a file
//! that people copy and share.

/// Prefixes of tokens with a known format.
const TOKEN_PREFIXES: [&str; 17] = [
    "sk-",
    "sk_live_",
    "rk_live_",
    "pk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "eyJ",
    "-----BEGIN",
];
/// Words in the names of secrets.
const SECRET_WORDS: [&str; 15] = [
    "key",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "pat",
    "credential",
    "credentials",
    "auth",
    "authorization",
    "cookie",
    "signature",
    "sig",
];
/// Words in names of metadata about a secret.
const METADATA_WORDS: [&str; 9] = [
    "path", "file", "url", "uri", "name", "id", "header", "limit", "env",
];

/// Whether the value of a variable or a header of this name must be hidden.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    !value.is_empty()
        && (is_secret_name(name)
            || has_scheme(value)
            || has_token(value)
            || has_password(value)
            || url_secrets(value).next().is_some())
}

/// Whether a name is that of a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let words = split_words(name);
    let named = words
        .iter()
        .any(|word| SECRET_WORDS.contains(&word.as_str()));
    let about = words
        .last()
        .is_some_and(|word| METADATA_WORDS.contains(&word.as_str()));
    named && !about
}

/// Whether a word alone looks like a secret.
#[must_use]
pub fn is_secret_word(word: &str) -> bool {
    let value = word
        .split_once([':', '='])
        .map_or(word, |(_, value)| value.trim());
    [word, value].into_iter().any(|value| is_secret("", value))
        || word.split_once(':').is_some_and(|(name, value)| {
            // `Authorization: Bearer x`, as a word after `--header`.
            is_secret_name(name)
                && !value.starts_with("//")
                && !value.contains("${")
                && !value.trim().is_empty()
        })
}

/// `Bearer x`, as in a header, with any x.
fn has_scheme(value: &str) -> bool {
    let (scheme, rest) = value.split_once(' ').unwrap_or_default();
    let known = ["bearer", "basic", "token", "apikey", "api-key", "bot"];
    let rest = rest.trim();
    known.contains(&scheme.to_ascii_lowercase().as_str())
        && rest.len() >= 8
        && !rest.contains([' ', '{'])
}

/// A secret part of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UrlSecret<'u> {
    /// Its label.
    pub(crate) name: &'u str,
    /// The part of the URL.
    pub(crate) value: &'u str,
}

impl UrlSecret<'_> {
    /// The text directly before it.
    pub(crate) fn prefix(&self) -> String {
        match self.name {
            "user" => "//".to_owned(),
            "path" => "/".to_owned(),
            name => format!("{name}="),
        }
    }
}

/// The secret parts of a URL, in order.
pub(crate) fn url_secrets(url: &str) -> impl Iterator<Item = UrlSecret<'_>> {
    let rest = url.split_once("://").map_or("", |(scheme, rest)| {
        let is_scheme = scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+');
        if is_scheme { rest } else { "" }
    });
    let rest = rest.split('#').next().unwrap_or_default();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let open = |value: &str| value.is_empty() || value.contains("${");
    let user = authority.rsplit_once('@').map(|(user, _)| UrlSecret {
        name: "user",
        value: user,
    });
    let is_password = |user: &UrlSecret<'_>| user.value.contains(':') || user.value.len() >= 16;
    let user = user.filter(is_password);
    let segments = path
        .split('/')
        .filter(|segment| has_token(segment) || is_random(segment));
    let segments = segments.map(|value| UrlSecret {
        name: "path",
        value,
    });
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.filter(|(name, value)| is_secret_name(name) || has_token(value));
    let pairs = pairs.map(|(name, value)| UrlSecret { name, value });
    user.into_iter()
        .chain(segments)
        .chain(pairs)
        .filter(move |secret| !open(secret.value))
}

/// Whether a path segment is random, as the keys in some URLs are.
#[must_use]
pub fn is_random(segment: &str) -> bool {
    let runs = segment.split(|c: char| !c.is_ascii_alphanumeric());
    let mut long = runs.filter(|run| run.len() >= 20);
    long.any(|run| {
        run.bytes().any(|b| b.is_ascii_digit()) && run.bytes().any(|b| b.is_ascii_alphabetic())
    })
}

fn has_token(value: &str) -> bool {
    let value = value.strip_prefix("Bearer ").unwrap_or(value);
    value.len() >= 16
        && TOKEN_PREFIXES
            .iter()
            .any(|beginning| value.starts_with(beginning))
}

/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    let authority = value
        .split_once("://")
        .map(|(_, rest)| rest.split(['/', '?', '#']).next());
    let user = authority
        .flatten()
        .and_then(|authority| authority.rsplit_once('@'));
    user.is_some_and(|(user, _)| {
        user.split_once(':')
            .is_some_and(|(_, password)| !password.is_empty())
    })
}

/// The words of `GITHUB_TOKEN`, `X-Api-Key` and `apiKey`, in lower case.
fn split_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small_before = false;
    for c in name.chars() {
        let begins = c.is_ascii_uppercase() && small_before;
        small_before = c.is_ascii_lowercase();
        if !c.is_ascii_alphanumeric() || begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    // `APIKEY`, `AUTHTOKEN`.
    let joined = [
        "apikey",
        "authtoken",
        "accesstoken",
        "accesskey",
        "secretkey",
    ];
    if words.iter().any(|word| joined.contains(&word.as_str())) {
        words.insert(0, "key".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognized_by_names_and_prefixes() {
        let secret = [
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x"),
            ("apiKey", "x"),
            ("X-Api-Key", "x"),
            ("OPENAI_APIKEY", "x"),
            ("Authorization", "Basic x"),
            ("GITHUB_PAT", "x"),
            ("ANYTHING", "ghp_0123456789abcdef"),
            ("DATABASE_URL", "postgres://me:pass@db.test/x"),
            ("AUTH_HEADER", "Bearer abcdefabcdef0123"),
            ("X", "Basic bWU6cGFzcw=="),
            ("MCP_URL", "https://a.test/mcp?api_key=abc"),
            ("MCP_URL", "https://a.test/s/AbC123dEf456GhI789jKl0/mcp"),
        ];
        for (name, value) in secret {
            assert!(is_secret(name, value), "{name}={value}");
        }
        let open = [
            ("PATH", "/usr/bin"),
            ("KEY_PATH", "/home/me/key"),
            ("APIKEY_FILE", "/home/me/key"),
            ("TOKEN_URL", "https://a.test/token"),
            ("KEYBOARD", "de"),
            ("DATABASE_URL", "postgres://db.test/x"),
            ("DATABASE_URL", "postgres://me@db.test/x"),
            ("API_TOKEN", ""),
            ("NODE_ENV", "sk-short"),
            ("GREETING", "Bearer of bad news"),
            ("MCP_URL", "https://a.test/mcp?region=eu&token=${T}"),
            ("MCP_URL", "https://a.test/server-filesystem/mcp"),
        ];
        for (name, value) in open {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }
}
