//! Who is at the HTTP door: a bearer token, or nobody in particular.

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::Reply;
use subtle::ConstantTimeEq;

/// How callers show who they are.
#[derive(Debug, Clone)]
pub enum Auth {
    /// Everyone is `agent.anonymous`; only where the door is on loopback.
    None,
    /// The holder of this token; only its hash is kept.
    Token(blake3::Hash),
}

impl Auth {
    /// Tells who the caller is.
    ///
    /// # Errors
    /// What to do about it, in words.
    pub fn judge(&self, headers: &HeaderMap) -> Result<AgentId, &'static str> {
        let Self::Token(hash) = self else {
            return Ok(AgentId::new("agent.anonymous"));
        };
        let token = headers
            .get(AUTHORIZATION)
            .ok_or("this door wants `Authorization: Bearer <token>`; `mgp status` names the file that holds the token")?
            .to_str()
            .ok()
            .and_then(|v| v.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or("`Authorization` must be `Bearer <token>`")?;
        let same = blake3::hash(token.as_bytes())
            .as_bytes()
            .ct_eq(hash.as_bytes());
        bool::from(same)
            .then(|| AgentId::new("agent.local"))
            .ok_or("the token is not valid; `mgp status` names the file that holds the right one")
    }
}

/// 401, with the way to do better.
pub(super) fn challenge(words: &str) -> Response<Reply> {
    let mut response = super::refusal(StatusCode::UNAUTHORIZED, words);
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens() {
        let auth = Auth::Token(blake3::hash(b"secret"));
        let with = |v: &str| HeaderMap::from_iter([(AUTHORIZATION, v.parse().unwrap())]);
        assert!(auth.judge(&with("Bearer secret")).is_ok());
        assert!(auth.judge(&with("bearer secret")).is_ok());
        assert!(auth.judge(&with("Bearer other")).is_err());
        assert!(auth.judge(&with("Basic secret")).is_err());
        assert!(auth.judge(&HeaderMap::new()).is_err());
    }
}
