//! Variables and secrets in configured values: `${VAR}`, `${VAR:-default}`, `${:-text}`, `$$`, and for
//! values that may be secret `file:PATH`, `secret:NAME` and `${secret:NAME}` within a text.
//!
//! Variables, files and secrets are looked up by closures of the caller.

use crate::store::secrets::is_typed_name;

/// The prefix of a value that refers to a stored secret.
pub const SECRET_PREFIX: &str = "secret:";

/// Why a value could not be resolved. It names what is missing and where it is used, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// `${VAR}` without such a variable.
    #[error("{place}: the variable {name} is not set; set it, or write ${{{name}:-default}}")]
    Unset {
        /// Name of the variable.
        name: String,
        /// Where in the configuration.
        place: String,
    },
    /// `${…` without an end, or without a name.
    #[error("{place}: {text:?} is no variable; write ${{NAME}}, or $$ for a dollar sign")]
    Malformed {
        /// Its beginning.
        text: String,
        /// Where in the configuration.
        place: String,
    },
    /// `file:PATH` that could not be read.
    #[error("{place}: cannot read {path}: {reason}")]
    File {
        /// The path, interpolated.
        path: String,
        /// The reader's error.
        reason: String,
        /// Where in the configuration.
        place: String,
    },
    /// `keyring:NAME`, the syntax of other programs.
    #[error(
        "{place}: keyring:{name} is written secret:{name} here; `mgp secrets set {name}` keeps it, in the keyring of the desktop where there is one"
    )]
    Keyring {
        /// Name of the secret.
        name: String,
        /// Where in the configuration.
        place: String,
    },
    /// `secret:NAME` that cannot be loaded.
    #[error("{place}: {reason}")]
    Secret {
        /// Why, and what to do.
        reason: String,
        /// Where in the configuration.
        place: String,
    },
    /// `${secret:NAME}` where the value would be visible to others.
    #[error(
        "{place}: a secret is put into values of `env` and `headers` alone; what stands here is seen by every user of the machine"
    )]
    ExposedSecret {
        /// Where in the configuration.
        place: String,
    },
}

/// Replaces variables in `text`. A variable that is set but empty counts as unset only if there is a
/// default. Values are not interpolated again.
///
/// # Errors
/// [`ResolveError`] names the variable and `place`, which describes where `text` is used.
pub fn interpolate(
    text: &str,
    place: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, ResolveError> {
    let open = |_: &str| {
        Err(ResolveError::ExposedSecret {
            place: place.to_owned(),
        })
    };
    interpolate_with(text, place, &lookup, &open)
}

fn interpolate_with(
    text: &str,
    place: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    secret: &dyn Fn(&str) -> Result<String, ResolveError>,
) -> Result<String, ResolveError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let dollar = &rest[at..];
        if let Some(after) = dollar.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some(inner) = dollar.strip_prefix("${") {
            let (variable, after) = inner
                .split_once('}')
                .ok_or_else(|| malformed(dollar, place))?;
            out.push_str(&match variable.strip_prefix(SECRET_PREFIX) {
                Some(name) => secret(name)?,
                None => resolve_variable(variable, place, lookup)?,
            });
            rest = after;
        } else {
            out.push('$');
            rest = &dollar[1..];
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Like [`interpolate`] for a value that may be a secret: `file:PATH` is the content of that file without its last
/// newline, `secret:NAME` the stored secret of that name. A reference is recognised by how the value is written, not
/// by what a variable contains: `${DATABASE}` may well hold `file:./dev.db`.
///
/// # Errors
/// [`ResolveError`], as [`interpolate`], or because the file or the secret could not be loaded.
pub fn resolve_secret(
    text: &str,
    place: &str,
    lookup: impl Fn(&str) -> Option<String>,
    read: impl Fn(&str) -> Result<String, String>,
    secret: impl Fn(&str) -> Result<String, String>,
) -> Result<String, ResolveError> {
    let secret = |name: &str| {
        let kept = if is_typed_name(name) {
            secret(name)
        } else {
            Err(format!(
                "{name:?} is no name of a secret; letters, digits, '_', '-', '.', '/' and '@' make one"
            ))
        };
        kept.map_err(|reason| ResolveError::Secret {
            reason,
            place: place.to_owned(),
        })
    };
    if let Some(name) = text.strip_prefix("keyring:") {
        return Err(ResolveError::Keyring {
            name: name.to_owned(),
            place: place.to_owned(),
        });
    }
    if let Some(name) = text.strip_prefix(SECRET_PREFIX) {
        return secret(name);
    }
    let Some(path) = text.strip_prefix("file:") else {
        return interpolate_with(text, place, &lookup, &secret);
    };
    let path = interpolate(path, place, lookup)?;
    let content = read(&path).map_err(|reason| ResolveError::File {
        path,
        reason,
        place: place.to_owned(),
    })?;
    let line = content.strip_suffix('\n').unwrap_or(&content);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// The names of the secrets that a configured value refers to.
#[must_use]
pub fn find_secrets(text: &str) -> Vec<&str> {
    if let Some(name) = text.strip_prefix(SECRET_PREFIX) {
        return vec![name];
    }
    let all = find_references(text).into_iter();
    all.filter_map(|it| it.strip_prefix(SECRET_PREFIX))
        .collect()
}

/// The names of the variables that a configured value refers to.
#[must_use]
pub fn find_variables(text: &str) -> Vec<&str> {
    let all = find_references(text).into_iter();
    let all = all.filter(|it| !it.starts_with(SECRET_PREFIX));
    let names = all.map(|it| it.split_once(":-").map_or(it, |(name, _)| name));
    // `${:-text}` has no name.
    names.filter(|name| !name.is_empty()).collect()
}

/// The text in the braces of each `${…}`.
fn find_references(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('$') {
        let dollar = &rest[at..];
        rest = &dollar[1..];
        if let Some(after) = dollar.strip_prefix("$$") {
            rest = after;
        } else if let Some((variable, after)) = dollar
            .strip_prefix("${")
            .and_then(|inner| inner.split_once('}'))
        {
            found.push(variable);
            rest = after;
        }
    }
    found
}

fn resolve_variable(
    variable: &str,
    place: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, ResolveError> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };
    // `${:-file:./dev.db}` marks its text as a literal that refers to nothing.
    if let ("", Some(text)) = (name, default) {
        return Ok(text.to_owned());
    }
    if !is_name(name) {
        return Err(malformed(&format!("${{{variable}}}"), place));
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(ResolveError::Unset {
            name: name.to_owned(),
            place: place.to_owned(),
        }),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn malformed(text: &str, place: &str) -> ResolveError {
    ResolveError::Malformed {
        text: text.chars().take(40).collect(),
        place: place.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: &str = "server github, env.TOKEN";

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".into()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${HOME}".into()),
            "DATABASE" => Some("file:./dev.db".into()),
            _ => None,
        }
    }

    fn plain(text: &str) -> Result<String, ResolveError> {
        interpolate(text, PLACE, lookup)
    }

    fn secret(text: &str) -> Result<String, ResolveError> {
        let read = |path: &str| match path {
            "/home/me/token" => Ok("s3cret\r\n".into()),
            _ => Err("No such file or directory".into()),
        };
        let kept = |name: &str| match name {
            "github/TOKEN" => Ok("ghp${HOME}".into()),
            _ => Err("there is no such secret".into()),
        };
        resolve_secret(text, PLACE, lookup, read, kept)
    }

    /// What `mgp import` writes for a text that would be taken for a reference.
    #[test]
    fn a_text_can_say_that_it_refers_to_nothing() {
        assert_eq!(secret("${:-file:./dev.db}").unwrap(), "file:./dev.db");
        assert_eq!(plain("a${:-secret:b}").unwrap(), "asecret:b");
        assert_eq!(plain("${:-}").unwrap(), "");
        assert!(matches!(plain("${}"), Err(ResolveError::Malformed { .. })));
        assert!(matches!(plain("${:}"), Err(ResolveError::Malformed { .. })));
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, want) in [
            ("plain", "plain"),
            ("${HOME}/x", "/home/me/x"),
            ("${NONE:-there}", "there"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-default}", "default"),
            ("${TRICK}", "${HOME}"),
            (
                "$$HOME costs 5$ or $5 or $$$$",
                "$HOME costs 5$ or $5 or $$",
            ),
            ("$${HOME}", "${HOME}"),
        ] {
            assert_eq!(plain(text).as_deref(), Ok(want), "{text}");
        }
    }

    /// MGP-217, A-26: the operator reads which variable is missing, and where.
    #[test]
    fn what_is_missing_is_named() {
        let error = plain("Bearer ${GITHUB_TOKEN}").unwrap_err().to_string();
        assert!(
            error.contains("GITHUB_TOKEN") && error.contains(PLACE),
            "{error}"
        );
        for bad in ["${", "${HOME", "${}", "${1A}", "${a b}", "${:x}"] {
            assert!(
                matches!(plain(bad), Err(ResolveError::Malformed { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn references_are_known_by_how_they_are_written() {
        assert_eq!(secret("file:${HOME}/token").as_deref(), Ok("s3cret"));
        assert_eq!(secret("${DATABASE}").as_deref(), Ok("file:./dev.db"));
        assert_eq!(secret("${HOME}").as_deref(), Ok("/home/me"));
        let missing = secret("file:/nope").unwrap_err().to_string();
        assert!(
            missing.contains("/nope") && missing.contains(PLACE),
            "{missing}"
        );
        let keyring = secret("keyring:github").unwrap_err().to_string();
        assert!(keyring.contains("keyring:github"), "{keyring}");
        assert!(keyring.contains("mgp secrets set github"), "{keyring}");
    }

    /// What a secret holds is not looked at again, and none is put where others see it.
    #[test]
    fn secrets_are_put_in_by_their_names() {
        for (text, want) in [
            ("secret:github/TOKEN", "ghp${HOME}"),
            ("Bearer ${secret:github/TOKEN}", "Bearer ghp${HOME}"),
            ("$${secret:github/TOKEN}", "${secret:github/TOKEN}"),
            ("${NONE:-secret:github/TOKEN}", "secret:github/TOKEN"),
        ] {
            assert_eq!(secret(text).as_deref(), Ok(want), "{text}");
        }
        for bad in [
            "secret:other",
            "${secret:other}",
            "secret:",
            "secret:a b",
            "secret:../x",
        ] {
            let refused = secret(bad).unwrap_err();
            assert!(
                matches!(refused, ResolveError::Secret { .. }),
                "{bad}: {refused}"
            );
        }
        let open = plain("--token=${secret:github/TOKEN}").unwrap_err();
        assert!(matches!(open, ResolveError::ExposedSecret { .. }), "{open}");
        let in_path = secret("file:${secret:github/TOKEN}").unwrap_err();
        assert!(
            matches!(in_path, ResolveError::ExposedSecret { .. }),
            "{in_path}"
        );
    }

    #[test]
    fn the_secrets_of_a_value_are_named() {
        assert_eq!(find_secrets("secret:a"), ["a"]);
        assert_eq!(find_secrets("x${secret:a}:${B}${secret:c/d}"), ["a", "c/d"]);
        for none in [
            "",
            "$${secret:a}",
            "${A:-secret:a}",
            "${secret:a",
            "a secret:b",
        ] {
            assert!(find_secrets(none).is_empty(), "{none}");
        }
    }

    proptest! {
        #[test]
        fn an_escaped_text_stands_for_itself(text in "\\PC{0,40}") {
            let escaped = text.replace('$', "$$");
            prop_assert_eq!(plain(&escaped), Ok(text));
        }

        #[test]
        fn no_text_breaks_it(text in "[$}{:a-]{0,20}") {
            let _ = plain(&text);
        }
    }
}
