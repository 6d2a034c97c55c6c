//! Parses `WWW-Authenticate` of a server that requires a token (RFC 9110, RFC 6750, RFC 9728).

use super::scopes::ScopeSet;

/// Longest value read, in bytes; longer ones are ignored.
const VALUE_BYTES_MAX: usize = 8 << 10;

/// The challenge of the scheme `Bearer`, or `DPoP`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginChallenge {
    /// URL of the resource metadata.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub scope: ScopeSet,
    /// Why the token was rejected, such as `invalid_token` or `insufficient_scope`.
    pub error: Option<String>,
    /// Tokens must be bound to a key (RFC 9449).
    pub requires_dpop: bool,
}

impl LoginChallenge {
    /// Parses the header's values, each of which may hold several challenges. The first challenge of the scheme counts,
    /// and in it the first parameter of each name.
    #[must_use]
    pub fn parse<'v>(values: impl IntoIterator<Item = &'v str>) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut is_match = false;
        for value in values
            .into_iter()
            .filter(|value| value.len() <= VALUE_BYTES_MAX)
        {
            for part in split_list(value) {
                let (scheme, parameter) = split_part(part);
                if let Some(scheme) = scheme {
                    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
                    is_match = (is("bearer") || is("dpop")) && found.is_none();
                    if is_match {
                        found = Some(Self {
                            requires_dpop: is("dpop"),
                            ..Self::default()
                        });
                    }
                }
                if let (true, Some(challenge), Some(parameter)) = (is_match, &mut found, parameter)
                {
                    challenge.add_parameter(parameter);
                }
            }
            is_match = false;
        }
        found
    }

    /// The token is valid but lacks scopes: a login for more scopes is needed.
    #[must_use]
    pub fn is_insufficient_scope(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn add_parameter(&mut self, parameter: &str) {
        let Some((name, value)) = parameter.split_once('=') else {
            return;
        };
        let value = unquote(value.trim());
        match name.trim().to_ascii_lowercase().as_str() {
            "resource_metadata" => {
                self.resource_metadata.get_or_insert(value);
            }
            "scope" if self.scope.is_empty() => self.scope = ScopeSet::parse(&value),
            "error" => {
                self.error.get_or_insert(value);
            }
            _ => {}
        }
    }
}

/// A parameter of the first challenge of the scheme `Bearer` in one value of this header.
#[must_use]
pub fn find_parameter(value: &str, wanted: &str) -> Option<String> {
    let mut is_match = false;
    let parameters = split_list(value.get(..VALUE_BYTES_MAX).unwrap_or(value)).filter_map(|part| {
        let (scheme, parameter) = split_part(part);
        if let Some(scheme) = scheme {
            is_match = scheme.eq_ignore_ascii_case("bearer");
        }
        parameter.filter(|_| is_match)
    });
    let mut values = parameters.filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is = name.trim().eq_ignore_ascii_case(wanted);
        is.then(|| unquote(value.trim()))
    });
    values.next()
}

/// Splits at commas outside quotes.
fn split_list(value: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    let is_separator = move |c: char| {
        let is_end = c == ',' && !quoted;
        match (c, escaped) {
            ('"', false) => quoted = !quoted,
            ('\\', false) if quoted => {
                escaped = true;
                return is_end;
            }
            _ => {}
        }
        escaped = false;
        is_end
    };
    value
        .split(is_separator)
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Splits a part into the scheme, if it begins a challenge, and the parameter, if any.
fn split_part(part: &str) -> (Option<&str>, Option<&str>) {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let end = part.find(|c| !token(c)).unwrap_or(part.len());
    let (word, rest) = part.split_at(end);
    match (rest, rest.trim_start()) {
        ("", _) => (Some(word), None),
        (rest, after) if rest.starts_with([' ', '\t']) && !after.starts_with('=') => {
            (Some(word), Some(after))
        }
        (_, _) => (None, Some(part)),
    }
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.extend(match c {
            '\\' => chars.next(),
            c => Some(c),
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_found_among_others() {
        let read = LoginChallenge::parse([
            r#"Basic realm="a, b", Negotiate YWJj=="#,
            r#"bearer realm="x", error="invalid_token", scope="a b", resource_metadata = "https://h/p,q\"r", scope="c""#,
            r#"Bearer error="other""#,
        ]);
        let read = read.unwrap();
        assert_eq!(read.error.as_deref(), Some("invalid_token"));
        assert_eq!(read.scope.to_string(), "a b");
        assert_eq!(read.resource_metadata.as_deref(), Some("https://h/p,q\"r"));
        assert!(!read.is_insufficient_scope() && !read.requires_dpop);
        assert!(
            LoginChallenge::parse(["DPoP error=\"x\""])
                .unwrap()
                .requires_dpop
        );
    }

    #[test]
    fn a_challenge_without_parameters_is_one_and_other_schemes_are_none() {
        assert_eq!(
            LoginChallenge::parse(["Bearer"]),
            Some(LoginChallenge::default())
        );
        assert_eq!(LoginChallenge::parse(["Basic realm=\"Bearer\""]), None);
        assert_eq!(LoginChallenge::parse([""]), None);
        assert_eq!(
            LoginChallenge::parse([&*format!("Bearer scope=\"{}\"", "a".repeat(9000))]),
            None
        );
        let other = LoginChallenge::parse(["Bearer, Basic scope=\"x\""]).unwrap();
        assert!(
            other.scope.is_empty(),
            "a parameter belongs to the scheme before it"
        );
    }

    #[test]
    fn a_parameter_is_read_in_its_own_challenge() {
        let value = "Basic realm=\"no\", Bearer realm=\"https://a/t\",service=\"s, t\", scope=x";
        assert_eq!(
            find_parameter(value, "realm").as_deref(),
            Some("https://a/t")
        );
        assert_eq!(find_parameter(value, "Service").as_deref(), Some("s, t"));
        assert_eq!(find_parameter(value, "scope").as_deref(), Some("x"));
        assert_eq!(find_parameter(value, "error"), None);
        assert_eq!(find_parameter("Basic realm=\"no\"", "realm"), None);
    }

    #[test]
    fn more_is_wanted_by_its_word() {
        let read = LoginChallenge::parse(["Bearer error=insufficient_scope, scope=\"w\""]).unwrap();
        assert!(read.is_insufficient_scope());
        assert_eq!(read.scope.to_string(), "w");
    }
}
