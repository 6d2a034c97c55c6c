//! Who is at the HTTP door: the holder of a token, or nobody in particular.

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use mgp_engine::calendar::rfc3339_ms;
use mgp_engine::roster::NotGood;
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::Reply;
use subtle::ConstantTimeEq;

use crate::pass::Pass;
use crate::roster::Rostered;

/// How callers show who they are.
#[derive(Debug, Clone)]
pub enum Auth {
    /// Everyone is `agent.anonymous`; only where the door is on loopback.
    None,
    /// The holder of a token that the kernel gave out.
    Token(Tokens),
}

/// The tokens the kernel gave out.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The hash of the kernel's own, whose holder is `agent.local`.
    pub own: blake3::Hash,
    /// The agents that have one.
    pub rostered: Rostered,
}

/// Why a caller is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwelcome {
    /// It showed nothing.
    NoCredentials,
    /// What it showed is no bearer token, or more than one.
    Unreadable,
    /// Nobody's token, or no longer anybody's; with the reason.
    Invalid(String),
    /// A token that was good until then.
    Expired(String),
}

impl Auth {
    /// Tells who the caller is.
    ///
    /// # Errors
    /// [`Unwelcome`].
    pub fn judge(&self, headers: &HeaderMap) -> Result<Pass, Unwelcome> {
        match self {
            Self::None => Ok(Pass::lasting(AgentId::new(AgentId::ANONYMOUS))),
            Self::Token(tokens) => tokens.judge(bearer(headers)?),
        }
    }
}

impl Tokens {
    fn judge(&self, token: &str) -> Result<Pass, Unwelcome> {
        match self.rostered.judge(token) {
            Ok(pass) => return Ok(pass),
            Err(NotGood::Expired(_, at_ms)) => return Err(Unwelcome::Expired(rfc3339_ms(at_ms))),
            Err(NotGood::Unknown) => {}
        }
        let hash = blake3::hash(token.as_bytes());
        let same = hash.as_bytes().ct_eq(self.own.as_bytes());
        match bool::from(same) {
            true => Ok(Pass::lasting(AgentId::new(AgentId::LOCAL))),
            false => Err(Unwelcome::Invalid("nobody has this token".into())),
        }
    }
}

/// The one bearer token that a request shows in its header; one in the address is none.
fn bearer(headers: &HeaderMap) -> Result<&str, Unwelcome> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().ok_or(Unwelcome::NoCredentials)?;
    if values.next().is_some() {
        return Err(Unwelcome::Unreadable);
    }
    let said = value.to_str().map_err(|_| Unwelcome::Unreadable)?;
    said.split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty())
        .ok_or(Unwelcome::Unreadable)
}

impl Unwelcome {
    /// What to do about it.
    fn words(&self) -> String {
        match self {
            Self::NoCredentials => "this door wants `Authorization: Bearer <token>`; `mgp status` names the file that holds the owner's token, `mgp agents add` makes one for an agent".into(),
            Self::Unreadable => "`Authorization` must be `Bearer <token>`, once".into(),
            Self::Invalid(why) => format!("the token is not valid: {why}; `mgp status` names the file that holds the owner's, `mgp agents token <name> --rotate` makes a new one for an agent"),
            Self::Expired(at) => format!("the token expired at {at}; `mgp agents token <name> --rotate` makes a new one"),
        }
    }

    /// `error` of RFC 6750, section 3.1; none where nothing was shown.
    fn error(&self) -> Option<(&'static str, String)> {
        match self {
            Self::NoCredentials => None,
            Self::Unreadable => Some(("invalid_request", "one bearer token is wanted".into())),
            Self::Invalid(why) => Some(("invalid_token", why.clone())),
            Self::Expired(at) => Some(("invalid_token", format!("the token expired at {at}"))),
        }
    }

    /// 401, with the way to do better.
    pub(super) fn answer(&self) -> Response<Reply> {
        let mut challenge = String::from("Bearer");
        if let Some((error, description)) = self.error() {
            challenge += &format!(
                r#" error="{error}", error_description="{}""#,
                quotable(&description)
            );
        }
        let mut response = super::refusal(StatusCode::UNAUTHORIZED, &self.words());
        let value = HeaderValue::from_str(&challenge).expect("only visible ASCII is in it");
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
        response
    }
}

/// What may stand in a quoted string of a header.
fn quotable(text: &str) -> String {
    let plain = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().filter(plain).collect()
}

#[cfg(test)]
mod tests {
    use mgp_engine::roster::{Change, Digest, Roster};

    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn auth() -> Auth {
        let mut roster = Roster::default();
        for (name, not_after_ms) in [("alice", None), ("late", Some(1))] {
            let change = Change::Added {
                agent: AgentId::parse(name).unwrap(),
                digest: Digest::of(&format!("mgp_{name}")),
                at_ms: 0,
                not_after_ms,
            };
            roster.apply(&change).unwrap();
        }
        Auth::Token(Tokens {
            own: blake3::hash(b"secret"),
            rostered: Rostered::new(roster),
        })
    }

    #[test]
    fn only_a_token_opens_and_names_its_agent() {
        let who = |value: &str| {
            auth()
                .judge(&with(value))
                .map(|pass| pass.agent.to_string())
        };
        assert_eq!(who("Bearer secret").unwrap(), "agent.local");
        assert_eq!(who("bearer secret").unwrap(), "agent.local");
        assert_eq!(who("Bearer mgp_alice").unwrap(), "agent.alice");
        assert!(matches!(
            who("Bearer mgp_other"),
            Err(Unwelcome::Invalid(_))
        ));
        assert!(matches!(who("Bearer mgp_late"), Err(Unwelcome::Expired(_))));
        for unreadable in ["Basic secret", "Bearer", "Bearer ", "secret"] {
            assert_eq!(who(unreadable), Err(Unwelcome::Unreadable), "{unreadable}");
        }
        let mut twice = with("Bearer secret");
        twice.append(AUTHORIZATION, "Bearer mgp_alice".parse().unwrap());
        assert_eq!(auth().judge(&twice).unwrap_err(), Unwelcome::Unreadable);
        let nothing = auth().judge(&HeaderMap::new());
        assert_eq!(nothing.unwrap_err(), Unwelcome::NoCredentials);
    }

    #[test]
    fn a_challenge_says_what_is_wrong_and_repeats_nothing() {
        let challenge = |unwelcome: &Unwelcome| {
            let value = unwelcome.answer().headers()[WWW_AUTHENTICATE].clone();
            value.to_str().unwrap().to_owned()
        };
        assert_eq!(challenge(&Unwelcome::NoCredentials), "Bearer");
        let invalid = Unwelcome::Invalid("a \"b\" \n c".into());
        let said = r#"Bearer error="invalid_token", error_description="a b  c""#;
        assert_eq!(challenge(&invalid), said);
    }
}
