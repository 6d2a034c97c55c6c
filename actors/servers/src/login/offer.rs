//! Sign-in offers for agents with separate logins: a call shows the person the address (MCP 2025-11-25,
//! elicitation in URL mode), and the browser is redirected to the kernel.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mgp_callers::Delivery;
use mgp_callers::agent::Agent;
use mgp_engine::servers::login::challenge::LoginChallenge;
use mgp_engine::servers::login::scopes::ScopeSet;
use mgp_protocol::jsonrpc;
use mgp_runtime::randomness;
use mgp_runtime::task;
use mgp_runtime::time::monotonic_now;
use serde_json::json;
use tokio::sync::Semaphore;

use super::offers::{LoginOffers, OpenOffer, SignInOffer};
use super::{CallbackListener, LoginError, ServerLogin, SignIn};

/// How long a person may take in the browser.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a failure to begin is reported to further calls of the agent: a retry would repeat the same
/// requests.
const FAILURE_RETENTION: Duration = Duration::from_secs(60);
/// The maximum of logins that wait for a browser, because each uses a port. Further ones are refused with a
/// command to run instead.
static PENDING_SIGN_INS: Semaphore = Semaphore::const_new(16);

impl ServerLogin {
    /// The address where a person can sign in for the calling agent: of an open offer, or of a new one. `client`
    /// is notified on completion.
    ///
    /// # Errors
    /// [`LoginError`] if no login can begin; repeated for a minute.
    pub(crate) async fn offer_sign_in(
        self: &Arc<Self>,
        client: Option<&Arc<Agent>>,
    ) -> Result<SignInOffer, LoginError> {
        let mut offers = self.offers.lock().await;
        if let Some(open) = offers
            .open
            .as_ref()
            .filter(|it| !it.browser_task.is_finished())
        {
            open.add_client(client);
            return Ok(open.offer.clone());
        }
        if let Some((at, error)) = &offers.failed
            && monotonic_now().duration_since(*at) < FAILURE_RETENTION
        {
            return Err(error.clone());
        }
        match self.open_offer().await {
            Ok(open) => {
                open.add_client(client);
                let offer = open.offer.clone();
                self.set_sign_in_url(&offer.url);
                *offers = LoginOffers {
                    open: Some(open),
                    failed: None,
                };
                Ok(offer)
            }
            Err(error) => {
                offers.failed = Some((monotonic_now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn open_offer(self: &Arc<Self>) -> Result<OpenOffer, LoginError> {
        let none = || LoginError::NoAnswer("too many logins wait for a browser already".into());
        let permit = PENDING_SIGN_INS.try_acquire().map_err(|_| none())?;
        let before = self.record();
        let before = before.as_ref().and_then(|it| it.client.callback.as_deref());
        let bound = CallbackListener::bind(self.rules.callback.as_deref(), before).await;
        let mut listener = bound.map_err(|e| LoginError::NoAnswer(e.to_string()))?;
        let challenge = self.wanted_login().map(|wanted| LoginChallenge {
            resource_metadata: wanted.resource_metadata,
            scope: ScopeSet::parse(wanted.scope.as_deref().unwrap_or_default()),
            error: None,
            requires_dpop: wanted.bound,
        });
        let under_way = SignIn::begin(self, challenge, &mut listener).await?;
        let offer = SignInOffer {
            url: under_way.url().to_owned(),
            id: URL_SAFE_NO_PAD.encode(randomness::random_bytes::<16>()),
        };
        let clients_to_notify: Arc<std::sync::Mutex<Vec<Weak<Agent>>>> = Arc::default();
        let (login, clients, id) = (self.clone(), clients_to_notify.clone(), offer.id.clone());
        let waiting = task::spawn_supervised("login.offer", async move {
            let _permit = permit;
            let code = tokio::select! {
                code = listener.wait_for_code(|query| under_way.parse_code(query)) => code,
                () = tokio::time::sleep(BROWSER_TIMEOUT) => return,
            };
            let done = match code {
                Ok(code) => under_way.finish(&login, &code).await.map(drop),
                Err(error) => Err(error.into()),
            };
            match done {
                Ok(()) => notify_complete(&clients, &id),
                Err(error) => {
                    tracing::warn!(server = %login.id, %error, "a login failed")
                }
            }
        });
        Ok(OpenOffer {
            offer,
            clients: clients_to_notify,
            browser_task: waiting,
        })
    }
}

/// Sends `notifications/elicitation/complete` to the clients that got the address.
fn notify_complete(clients: &std::sync::Mutex<Vec<Weak<Agent>>>, id: &str) {
    let clients = std::mem::take(
        &mut *clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner),
    );
    let params = json!({ "elicitationId": id }).to_string();
    let frame = jsonrpc::notification("notifications/elicitation/complete", Some(&params));
    for client in clients.iter().filter_map(Weak::upgrade) {
        client.send(frame.clone().into(), Delivery::Reliable);
    }
}
