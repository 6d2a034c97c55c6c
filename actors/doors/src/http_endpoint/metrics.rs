//! `/metrics`: metrics of the whole kernel, for readers that may see the activity of all agents.
//!
//! No agent may. The path has a token of its own, which is valid nowhere else. Without a token only
//! programs on this machine may read it, and only if the operator enabled that.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Method, Response, StatusCode};
use mgp_engine::calls::telemetry::exposition::TextFormat;
use mgp_engine::calls::telemetry::families::{MetricFamily, MetricKind};
use mgp_runtime::Counter;
use mgp_transports::http::body::ReplyBody;
use subtle::ConstantTimeEq;

use super::auth::{AuthError, bearer_token};
use super::headers::accept_weight;
use super::responses::refusal_response;
use mgp_callers::request::AnswerFuture;

/// Headers that a proxy adds, beside all that begin with [`FORWARDED_PREFIX`]: a client behind a local
/// proxy is not on this machine.
const PROXY_HEADERS: [&str; 7] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
];
const FORWARDED_PREFIX: &str = "x-forwarded-";

/// Statuses that are counted, from 100 on.
const STATUSES: usize = 500;

/// Renders the metrics in a text format.
#[derive(Clone)]
pub struct MetricsPage(Arc<dyn Fn(TextFormat) -> AnswerFuture<String> + Send + Sync>);

impl MetricsPage {
    /// Creates a page with this renderer.
    #[must_use]
    pub fn new(write: impl Fn(TextFormat) -> AnswerFuture<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }
}

impl fmt::Debug for MetricsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsPage")
    }
}

/// The `/metrics` path.
#[derive(Debug, Clone)]
pub struct MetricsPath {
    /// Its content.
    pub page: MetricsPage,
    /// The hash of its token.
    pub token: blake3::Hash,
    /// True if programs on this machine need no token.
    pub loopback: bool,
}

impl MetricsPath {
    /// Answers a scrape.
    pub(super) async fn handle(
        &self,
        method: &Method,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Response<ReplyBody> {
        if *method != Method::GET {
            return super::method_not_allowed("GET");
        }
        if let Err(unwelcome) = self.authorize(headers, peer) {
            let mut response = unwelcome.to_response(None);
            *response.body_mut() = refusal_response(StatusCode::UNAUTHORIZED, ADVICE).into_body();
            return response;
        }
        let form = negotiate_form(headers);
        let text = (self.page.0)(form).await;
        let mut response = Response::new(ReplyBody::full(text));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Authorizes a scrape. A client that sends a token is checked by it, wherever it connects from.
    fn authorize(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), AuthError> {
        if !headers.contains_key(AUTHORIZATION) && self.loopback && is_local(headers, peer) {
            return Ok(());
        }
        let hash = blake3::hash(bearer_token(headers)?.as_bytes());
        let same = hash.as_bytes().ct_eq(self.token.as_bytes());
        if bool::from(same) {
            Ok(())
        } else {
            Err(AuthError::Invalid("it is not the token of /metrics".into()))
        }
    }
}

/// The error for all other clients. No agent's token is accepted: the path shows the activity of other
/// agents.
const ADVICE: &str = "/metrics wants `Authorization: Bearer <token>` with the token that `mgp metrics --scrape-config` \
    names; the tokens of agents do not open it";

/// True if the request comes from a program on this machine, as far as that can be detected.
fn is_local(headers: &HeaderMap, peer: IpAddr) -> bool {
    let of_proxy = |name: &str| PROXY_HEADERS.contains(&name) || name.starts_with(FORWARDED_PREFIX);
    let through = headers.keys().any(|name| of_proxy(name.as_str()));
    peer.to_canonical().is_loopback() && !through
}

/// The format with the larger weight; if equal OpenMetrics, if the scraper names it, otherwise the older
/// one.
fn negotiate_form(headers: &HeaderMap) -> TextFormat {
    let (open, narrow) = accept_weight(headers, "application/openmetrics-text");
    let (plain, _) = accept_weight(headers, "text/plain");
    // Named explicitly, not only by `*/*`.
    if narrow == 2 && open > 0 && open >= plain {
        TextFormat::OpenMetrics
    } else {
        TextFormat::Prometheus
    }
}

/// Counts of the HTTP endpoint's responses by kind.
#[derive(Debug)]
pub struct ResponseCounts([Counter; STATUSES]);

impl Default for ResponseCounts {
    fn default() -> Self {
        Self([const { Counter::new() }; STATUSES])
    }
}

impl ResponseCounts {
    pub(super) fn count(&self, status: StatusCode) {
        let index = usize::from(status.as_u16()).checked_sub(100);
        if let Some(count) = index.and_then(|index| self.0.get(index)) {
            count.increment();
        }
    }

    /// The metric family of the counted statuses.
    #[must_use]
    pub fn family(&self) -> MetricFamily {
        let mut family = MetricFamily::new(
            "mgp_http_requests",
            MetricKind::Counter,
            "Requests that the HTTP door answered, by status; those for a name that is not the kernel's are not among them.",
        );
        for (index, count) in self.0.iter().enumerate() {
            if count.get() > 0 {
                family.add_point(&[("status", &(index + 100).to_string())], count.get());
            }
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(loopback: bool) -> MetricsPath {
        MetricsPath {
            page: MetricsPage::new(|_| Box::pin(std::future::ready("figures".to_owned()))),
            token: blake3::hash(b"right"),
            loopback,
        }
    }

    fn is_authorized(loopback: bool, headers: &[(&'static str, &str)], peer: &str) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers = HeaderMap::from_iter(headers);
        path(loopback)
            .authorize(&headers, peer.parse().unwrap())
            .is_ok()
    }

    /// Decision 0066: without its token the path is open to no client, or to this machine only; a client
    /// with a wrong token, or behind a proxy, is rejected even if it is local.
    #[test]
    fn metrics_require_their_token_or_a_local_client() {
        let right = [("authorization", "Bearer right")];
        let agents = [("authorization", "Bearer mgp_agent")];
        for loopback in [false, true] {
            assert!(is_authorized(loopback, &right, "192.0.2.1"));
            assert!(!is_authorized(loopback, &agents, "127.0.0.1"));
            assert!(!is_authorized(loopback, &[], "192.0.2.1"));
            assert_eq!(is_authorized(loopback, &[], "127.0.0.1"), loopback);
            assert_eq!(is_authorized(loopback, &[], "::ffff:127.0.0.1"), loopback);
            assert!(!is_authorized(
                loopback,
                &[("x-forwarded-for", "192.0.2.1")],
                "127.0.0.1"
            ));
            for of_proxy in ["forwarded", "via", "x-real-ip", "x-forwarded-host"] {
                assert!(!is_authorized(loopback, &[(of_proxy, "192.0.2.1")], "::1"));
            }
        }
    }

    /// Decision 0066: a scraper gets the format with the larger weight, in any number of headers; the first
    /// two cases are sent by Prometheus 2 and 3.
    #[test]
    fn scraper_gets_the_requested_format() {
        let wanted = |accept: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(http::header::ACCEPT, value.parse().unwrap());
            }
            negotiate_form(&headers)
        };
        for open in [
            &[
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ][..],
            &[
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,/;q=0.1",
            ],
            &["text/plain;q=0.2", "Application/OpenMetrics-Text"],
        ] {
            assert_eq!(wanted(open), TextFormat::OpenMetrics, "{open:?}");
        }
        for plain in [
            &[][..],
            &["*/*"],
            &["application/*"],
            &["text/plain"],
            &["text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"],
            &["application/openmetrics-text; q=0, */*"],
        ] {
            assert_eq!(wanted(plain), TextFormat::Prometheus, "{plain:?}");
        }
    }

    #[test]
    fn responses_are_counted_by_status() {
        let counts = ResponseCounts::default();
        counts.count(StatusCode::OK);
        counts.count(StatusCode::UNAUTHORIZED);
        counts.count(StatusCode::from_u16(999).unwrap());
        let labels = counts
            .family()
            .points
            .into_iter()
            .map(|point| point.labels[0].1.clone());
        assert_eq!(labels.collect::<Vec<_>>(), ["200", "401"]);
    }
}
