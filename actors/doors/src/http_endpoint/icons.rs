//! Icons of definitions (SEP-973), without authentication, because hosts load them without credentials. Their names in
//! the URL are secret, and known only to those who read a list with them.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode};
use mgp_transports::http::body::ReplyBody;

use super::{HttpEndpoint, empty_response, method_not_allowed};

impl HttpEndpoint {
    /// Answers a request for the icon of that name.
    pub(super) async fn answer_icon(&self, method: &Method, name: &str) -> Response<ReplyBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return method_not_allowed("GET");
        }
        let Some(icon) = self.endpoint.routes.icon(name).await else {
            return empty_response(StatusCode::NOT_FOUND);
        };
        let mut response = Response::new(ReplyBody::full(icon.bytes));
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
