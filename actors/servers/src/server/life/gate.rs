//! Tells a server what is decided about its permissions (MGP §3.5, §3.6), where it negotiated
//! permissions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mgp_protocol::mcp::Method;
use mgp_protocol::mgp::negotiation::{Active, Features};
use mgp_protocol::mgp::permission::{Await, Grant, Request, Response};

use crate::link::Link;
use mgp_callers::request::Answering;
use mgp_policy::permissions::{GateListener, GateNews};

/// How long a server may take to acknowledge; then the decision holds all the same.
const HEARING: Duration = Duration::from_secs(5);

/// A server as its permission gate sees it.
#[derive(Debug)]
pub(in crate::server) struct LinkGateListener(Weak<Link>);

impl LinkGateListener {
    pub(in crate::server) fn over(link: &Arc<Link>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(link)))
    }
}

impl GateListener for LinkGateListener {
    fn hears(&self, news: GateNews) -> Answering<()> {
        let link = self.0.upgrade();
        let link = link.filter(|link| link.mgp().features().contains(Features::PERMISSIONS));
        Box::pin(async move {
            if let Some(link) = link {
                tell(&link, news).await;
            }
        })
    }
}

/// The answer changes nothing; a server that does not know the method is treated like any other.
async fn tell(link: &Arc<Link>, news: GateNews) {
    let later = link.mgp().active().is_some_and(Active::awaits_permissions);
    match (news, later) {
        (GateNews::Asked(ask), true) => say(link, Await::METHOD, &ask).await,
        (GateNews::Asked(ask), false) => say(link, Request::METHOD, &ask).await,
        (GateNews::Decided(decision), true) => say(link, Grant::METHOD, &decision).await,
        (GateNews::Decided(decision), false) => say(link, Response::METHOD, &decision).await,
    }
}

async fn say(link: &Arc<Link>, method: &str, params: &impl serde::Serialize) {
    let params = serde_json::to_string(params).expect("what is asked and decided is always JSON");
    let answer = link.ask(method, Some(&params));
    match tokio::time::timeout(HEARING, answer).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(server = %link.server, method, %error, "a silent gate"),
        Err(_) => tracing::debug!(server = %link.server, method, "no answer: a silent gate"),
    }
}
