//! Values that look like secrets. A guess, made so that a secret is rather kept apart than left in a file that
//! people copy and show around.

/// Beginnings of tokens that their makers gave a form to be known by.
const BEGINNINGS: [&str; 17] = [
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
/// Words in the names of what holds a secret.
const WORDS: [&str; 15] = [
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
/// Words that say that it is something about a secret and not the secret.
const ABOUT: [&str; 9] = [
    "path", "file", "url", "uri", "name", "id", "header", "limit", "env",
];

/// Whether the value of a variable or a header of this name is one that others must not see.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    !value.is_empty() && (is_secret_name(name) || has_token(value) || has_password(value))
}

/// Whether what is called so is a secret, as far as names tell.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let words = words(name);
    let named = words.iter().any(|word| WORDS.contains(&word.as_str()));
    let about = words
        .last()
        .is_some_and(|word| ABOUT.contains(&word.as_str()));
    named && !about
}

fn has_token(value: &str) -> bool {
    let value = value.strip_prefix("Bearer ").unwrap_or(value);
    value.len() >= 16
        && BEGINNINGS
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

/// The words of `GITHUB_TOKEN`, `X-Api-Key` and `apiKey`, in small letters.
fn words(name: &str) -> Vec<String> {
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
    fn secrets_are_known_by_their_names_and_by_their_beginnings() {
        let secret = [
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "x"),
            ("apiKey", "x"),
            ("X-Api-Key", "x"),
            ("OPENAI_APIKEY", "x"),
            ("Authorization", "Basic x"),
            ("GITHUB_PAT", "x"),
            ("ANYTHING", "ghp_0123456789abcdef"),
            ("DATABASE_URL", "postgres://me:pass@db.test/x"),
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
        ];
        for (name, value) in open {
            assert!(!is_secret(name, value), "{name}={value}");
        }
    }
}
