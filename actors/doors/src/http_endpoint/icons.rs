//! Icons of definitions (SEP-973), without authentication, because hosts load them without credentials. Their names in
//! the URL are secret, and known only to those who read a list with them.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode};
use mgp_protocol::ids::AgentId;
use mgp_transports::http::body::ReplyBody;

use super::responses::overloaded_response;
use super::{HttpEndpoint, backpressure_message, empty_response, method_not_allowed};

impl HttpEndpoint {
    /// Answers a request for the icon of that name.
    pub(super) async fn answer_icon(&self, method: &Method, name: &str) -> Response<ReplyBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return method_not_allowed("GET");
        }
        // Whoever loads icons has no credentials: what they do not read is counted as that of one agent.
        let anonymous = AgentId::new(AgentId::ANONYMOUS);
        let budget = self.endpoint.directory.responses.budget(&anonymous);
        if budget.is_full() {
            return overloaded_response(None, &backpressure_message(&budget));
        }
        let Some(icon) = self.endpoint.routes.icon(name).await else {
            return empty_response(StatusCode::NOT_FOUND);
        };
        let mut response = Response::new(ReplyBody::full(icon.bytes));
        response.body_mut().count_unread(&budget);
        let headers = [
            (CONTENT_TYPE, icon.media_type),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // An SVG may have scripts; opened on its own it has no origin, and loads nothing.
            (
                CONTENT_SECURITY_POLICY,
                "default-src 'none'; style-src 'unsafe-inline'; sandbox",
            ),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "cross-origin",
            ),
            (CACHE_CONTROL, "private, max-age=3600"),
        ];
        for (name, value) in headers {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
