//! Variables and secrets in configured values (A-26): `${VAR}`, `${VAR:-default}`, `${:-text}`, `$$`, and for
//! values that may be secret `file:PATH`, `secret:NAME` and `${secret:NAME}` within a text.
//!
//! Variables, files and secrets are looked up by closures of the caller.

use crate::store::secrets::is_typed_name;

/// The prefix of a value that refers to a stored secret.
pub const SECRET_PREFIX: &str = "secret:";
/// The prefix of the name of a secret that each agent has for itself, after [`SECRET_PREFIX`].
pub const AGENT_PREFIX: &str = "agent:";

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
    /// `secret:agent:NAME` where no agent is known.
    #[error(
        "{place}: secret:agent:{name} is a secret of each agent, which values of `env` and `headers` of a server can have"
    )]
    AgentSecret {
        /// Name of the secret.
        name: String,
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
    let pieces = interpolate_pieces(text, place, lookup, secret)?;
    let texts = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => Ok(text),
        Piece::AgentSecret(name) => Err(ResolveError::AgentSecret {
            name,
            place: place.to_owned(),
        }),
    });
    texts.collect()
}

fn interpolate_pieces(
    text: &str,
    place: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    secret: &dyn Fn(&str) -> Result<String, ResolveError>,
) -> Result<Vec<Piece>, ResolveError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        pieces.push(Piece::Text(rest[..at].to_owned()));
        let dollar = &rest[at..];
        if let Some(after) = dollar.strip_prefix("$$") {
            pieces.push(Piece::Text("$".to_owned()));
            rest = after;
        } else if let Some(inner) = dollar.strip_prefix("${") {
            let (variable, after) = inner
                .split_once('}')
                .ok_or_else(|| malformed(dollar, place))?;
            pieces.push(match variable.strip_prefix(SECRET_PREFIX) {
                Some(name) => resolve_piece(name, secret)?,
                None => Piece::Text(resolve_variable(variable, place, lookup)?),
            });
            rest = after;
        } else {
            pieces.push(Piece::Text("$".to_owned()));
            rest = &dollar[1..];
        }
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

/// The secret of this name, or what stands for it until the agent is known.
fn resolve_piece(
    name: &str,
    secret: &dyn Fn(&str) -> Result<String, ResolveError>,
) -> Result<Piece, ResolveError> {
    match name.strip_prefix(AGENT_PREFIX) {
        Some(name) if is_typed_name(name) => Ok(Piece::AgentSecret(name.to_owned())),
        Some(_) | None => secret(name).map(Piece::Text),
    }
}

/// A part of a value.
#[derive(Clone, PartialEq, Eq)]
enum Piece {
    /// May contain secrets.
    Text(String),
    /// The name of a secret of the agent.
    AgentSecret(String),
}

/// A value with secrets that each agent has for itself. `Debug` shows their names alone.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentValue(Vec<Piece>);

impl AgentValue {
    /// The names of the secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::AgentSecret(name) => Some(name.as_str()),
        })
    }

    /// The value with the secrets of one agent; `None` if one is missing.
    #[must_use]
    pub fn resolve(&self, secret: impl Fn(&str) -> Option<String>) -> Option<String> {
        let texts = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => Some(text.clone()),
            Piece::AgentSecret(name) => secret(name),
        });
        texts.collect()
    }
}

impl std::fmt::Debug for AgentValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Like [`resolve_secret`] for a value of `env` or `headers` that refers to secrets of each agent; `None` for others.
///
/// # Errors
/// As [`resolve_secret`].
pub fn resolve_agent_value(
    text: &str,
    place: &str,
    lookup: impl Fn(&str) -> Option<String>,
    secret: impl Fn(&str) -> Result<String, String>,
) -> Result<Option<AgentValue>, ResolveError> {
    let is_of_agent = |name: &str| name.starts_with(AGENT_PREFIX);
    if !find_secrets(text).into_iter().any(is_of_agent) {
        return Ok(None);
    }
    let secret = |name: &str| load_secret(name, place, &secret);
    let pieces = match text.strip_prefix(SECRET_PREFIX) {
        Some(name) => vec![resolve_piece(name, &secret)?],
        None => interpolate_pieces(text, place, &lookup, &secret)?,
    };
    Ok(Some(AgentValue(pieces)))
}

fn load_secret(
    name: &str,
    place: &str,
    load: &dyn Fn(&str) -> Result<String, String>,
) -> Result<String, ResolveError> {
    let loaded = if is_typed_name(name) {
        load(name)
    } else {
        Err(format!(
            "{name:?} is no name of a secret; letters, digits, '_', '-', '.', '/' and '@' make one"
        ))
    };
    loaded.map_err(|reason| ResolveError::Secret {
        reason,
        place: place.to_owned(),
    })
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
    let secret = |name: &str| load_secret(name, place, &secret);
    if let Some(name) = text.strip_prefix("keyring:") {
        return Err(ResolveError::Keyring {
            name: name.to_owned(),
            place: place.to_owned(),
        });
    }
    if let Some(name) = text.strip_prefix(SECRET_PREFIX) {
        return match resolve_piece(name, &secret)? {
            Piece::Text(value) => Ok(value),
            Piece::AgentSecret(name) => Err(ResolveError::AgentSecret {
                name,
                place: place.to_owned(),
            }),
        };
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

    fn parse_agent_value(text: &str) -> Result<Option<AgentValue>, ResolveError> {
        let kept = |name: &str| match name {
            "shared" => Ok("sh4red".into()),
            _ => Err("there is no such secret".into()),
        };
        resolve_agent_value(text, PLACE, lookup, kept)
    }

    #[test]
    fn a_value_waits_for_the_secrets_of_an_agent() {
        let alice = |name: &str| (name == "github").then(|| "of-alice".to_owned());
        for (text, want) in [
            ("secret:agent:github", "of-alice"),
            ("Bearer ${secret:agent:github}", "Bearer of-alice"),
            (
                "${HOME}:${secret:shared}:${secret:agent:github}:$$",
                "/home/me:sh4red:of-alice:$",
            ),
        ] {
            let value = parse_agent_value(text).unwrap().unwrap();
            assert_eq!(value.names().collect::<Vec<_>>(), ["github"]);
            assert_eq!(value.resolve(alice).as_deref(), Some(want));
            assert_eq!(value.resolve(|_| None), None);
            let shown = format!("{value:?}");
            assert_eq!(shown, r#"["github"]"#, "no text, which may be a secret");
        }
        for other in [
            "secret:shared",
            "${secret:shared}",
            "plain",
            "file:agent:github",
        ] {
            assert_eq!(parse_agent_value(other), Ok(None), "{other}");
        }
        let unknown = parse_agent_value("${secret:nope}${secret:agent:github}");
        assert!(matches!(unknown, Err(ResolveError::Secret { .. })));
        for bad in [
            "secret:agent:",
            "secret:agent:agent:x",
            "${secret:agent:a b}",
        ] {
            assert!(parse_agent_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_of_agents_have_no_value_where_no_agent_is_known() {
        for text in ["secret:agent:github", "x${secret:agent:github}"] {
            let refused = secret(text);
            assert!(
                matches!(&refused, Err(ResolveError::AgentSecret { name, .. }) if name == "github"),
                "{refused:?}"
            );
        }
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
