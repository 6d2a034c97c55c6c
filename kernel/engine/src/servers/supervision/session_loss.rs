//! Interprets HTTP errors as possible loss of the session.

/// The body of an HTTP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalBody {
    /// A JSON-RPC error with the id of the request: the server has read the request.
    Response,
    /// Anything else.
    Other,
}

/// True if the session may have ended; the kernel then checks with a request in the same session. MCP requires 404; the
/// examples of its SDKs, and many servers, send 400. Statuses for login, size or rate limits do not concern the session.
#[must_use]
pub fn is_session_suspect(status: u16) -> bool {
    match status {
        401 | 403 | 405 | 407 | 408 | 413 | 414 | 415 | 429 | 431 => false,
        400..=499 => true,
        _ => false,
    }
}

/// True if a request that was rejected in an ended session cannot have run and may be retried in a new one.
#[must_use]
pub fn can_retry(status: u16, body: RefusalBody) -> bool {
    is_session_suspect(status) && (body == RefusalBody::Other || matches!(status, 404 | 410))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statuses_of_a_lost_session_are_suspect() {
        for status in [400, 404, 409, 410, 422] {
            assert!(is_session_suspect(status), "{status}");
        }
        for status in [200, 307, 401, 403, 405, 413, 429, 500, 502, 503] {
            assert!(!is_session_suspect(status), "{status}");
            assert!(!can_retry(status, RefusalBody::Other), "{status}");
        }
    }

    /// With a response to the request itself, only MCP's statuses for a lost session prove that it did not run.
    #[test]
    fn an_answered_request_may_have_run() {
        assert!(can_retry(400, RefusalBody::Other));
        assert!(!can_retry(400, RefusalBody::Response));
        assert!(can_retry(404, RefusalBody::Response));
    }
}
