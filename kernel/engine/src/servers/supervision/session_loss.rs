//! What a refusal over HTTP says about the session that the request was made in.

/// What the body of the refusal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalBody {
    /// An error with the id of the request: its server has read the request.
    Response,
    /// Anything else.
    Other,
}

/// True where the session may be over: then the server is asked, in the same session, before anything follows from it.
/// MCP says 404; the examples of its SDKs, and many servers after them, say 400. A status that has a meaning of its own
/// (a login, a size, a rate) says nothing about a session.
#[must_use]
pub fn is_session_suspect(status: u16) -> bool {
    match status {
        401 | 403 | 405 | 407 | 408 | 413 | 414 | 415 | 429 | 431 => false,
        400..=499 => true,
        _ => false,
    }
}

/// True where a request refused in a session that is over cannot have run, and may be made once more in a new one.
#[must_use]
pub fn can_retry(status: u16, body: RefusalBody) -> bool {
    is_session_suspect(status) && (body == RefusalBody::Other || matches!(status, 404 | 410))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_a_lost_session_explains_raises_doubt() {
        for status in [400, 404, 409, 410, 422] {
            assert!(is_session_suspect(status), "{status}");
        }
        for status in [200, 307, 401, 403, 405, 413, 429, 500, 502, 503] {
            assert!(!is_session_suspect(status), "{status}");
            assert!(!can_retry(status, RefusalBody::Other), "{status}");
        }
    }

    /// Once an answer to the request itself came, only the statuses that MCP gives a lost session say that it was not
    /// read.
    #[test]
    fn what_its_server_answered_may_have_run() {
        assert!(can_retry(400, RefusalBody::Other));
        assert!(!can_retry(400, RefusalBody::Response));
        assert!(can_retry(404, RefusalBody::Response));
    }
}
