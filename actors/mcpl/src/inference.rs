//! Inferences that servers request (MCPL §11), and `model/info` (§12).
//!
//! The operator's rules choose who answers: an agent that is a host, the client of an agent, a provider, or nobody. The
//! maximum cost is reserved before anything is sent; each request is answered within a bounded time.

mod agents;
mod hook_adapter;
pub(crate) mod inference_hooks;
mod models;
mod parts;
mod prompt;
mod providers;
mod push_inference;
mod tokens;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_callers::Directory;
use mgp_json::quote;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::inference::InferenceRules;
use mgp_mcpl_engine::inference::budget::{TokenReservation, max_usage};
use mgp_mcpl_engine::inference::provider::PromptOrder;
use mgp_mcpl_engine::inference::routes::Destination;
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::inference::{
    INFERENCE_FAILED, InferenceAnswer, InferenceFailure, InferencePreferences, PromptTurn, Request,
};
use mgp_protocol::mcpl::model::Info;
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::{EventSink, randomness, task};
use serde_json::json;

use self::inference_hooks::{AnswerVerdict, InferenceHooks};
use self::parts::AnswerParts;
use self::prompt::{estimate_usage, kernel_inference, merge_additions};
use self::providers::{InferenceError, Providers};
use self::tokens::ReserveError;
use crate::agents::McplAgents;
use crate::audit::{self, McplActor, McplRecord};
use crate::conversations::Conversations;
use crate::host::{HostEvent, McplHandler, McplHost, McplServerMessage};

pub use self::hook_adapter::id_mapper;
pub use self::models::ObservedModels;
pub use self::push_inference::{PublishedAnswer, PushInferenceRequest};
pub use self::tokens::UsedTokens;

/// Concurrent inferences of one server, queued ones included; a further one is rejected.
const OPEN_MAX: usize = 8;
/// Conversations with a stored agent; beyond this, all are dropped, and each is assigned an agent again.
const STICKY_MAX: usize = 4096;

/// Answers inferences. Clones share the state.
#[derive(Clone, Debug)]
pub struct InferenceHandle(Arc<SharedInference>);

/// The dependencies of inferences.
#[derive(Debug)]
pub struct InferenceDeps {
    /// The servers and their sets.
    pub host: Arc<McplHost>,
    /// The agents that can answer.
    pub agents: Arc<McplAgents>,
    /// The clients that can answer.
    pub directory: Arc<Directory>,
    /// Maps ids between their sides.
    pub ids: Conversations,
    /// The models of agents.
    pub models: ObservedModels,
    /// The hooks around the kernel's own inferences.
    pub hooks: Arc<dyn InferenceHooks>,
    /// Receives the answers to push events that are to be published.
    pub publish: EventSink<PublishedAnswer>,
}

/// The rules in force, and the queues of their providers.
#[derive(Debug)]
struct ActiveRules {
    rules: InferenceRules,
    providers: Providers,
}

#[derive(Debug)]
struct SharedInference {
    /// An inference in flight continues with the rules that it began with.
    active_rules: RwLock<Arc<ActiveRules>>,
    deps: InferenceDeps,
    tokens: UsedTokens,
    /// The inferences in flight of each server.
    open: Mutex<HashMap<ServerId, usize>>,
    /// The agent of each conversation.
    sticky_agents: Mutex<BTreeMap<(ServerId, String), ConnectionId>>,
}

/// A requested inference.
struct InferenceJob {
    active_rules: Arc<ActiveRules>,
    /// The kernel's id of the inference.
    id: String,
    server: ServerId,
    set: String,
    conversation: Option<String>,
    turns: Vec<PromptTurn>,
    /// The server's JSON text.
    messages: String,
    preferences: Option<String>,
    parsed_preferences: InferencePreferences,
}

/// An answer and its origin.
struct InferenceResult {
    answer: InferenceAnswer,
    /// Whether the usage was reported with the answer.
    is_usage_reported: bool,
    agent: Option<AgentId>,
}

impl InferenceHandle {
    /// Starts with these rules.
    #[must_use]
    pub fn new(tokens: UsedTokens, rules: InferenceRules, from: InferenceDeps) -> Self {
        Self(Arc::new(SharedInference {
            active_rules: RwLock::new(ActiveRules::new(rules)),
            tokens,
            deps: from,
            open: Mutex::default(),
            sticky_agents: Mutex::default(),
        }))
    }

    /// Replaces the rules for future requests.
    pub fn configure(&self, rules: InferenceRules) {
        let mut active = self
            .0
            .active_rules
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if active.rules != rules {
            *active = ActiveRules::new(rules);
        }
    }

    /// The handler for the host. Holds the state weakly.
    #[must_use]
    pub fn handler(&self) -> McplHandler {
        let (for_messages, for_events) = (Arc::downgrade(&self.0), Arc::downgrade(&self.0));
        McplHandler {
            methods: &[Request::METHOD, Info::METHOD],
            messages: EventSink::new(move |server_message| {
                if let Some(inference) = for_messages.upgrade() {
                    Self(inference).handle_message(server_message);
                }
            }),
            events: EventSink::new(move |event| {
                if let Some(inference) = for_events.upgrade() {
                    Self(inference).handle_event(&event);
                }
            }),
        }
    }

    fn handle_event(&self, event: &HostEvent) {
        if let HostEvent::Disconnected(server) = event
            && !self.0.deps.host.is_connected(server)
        {
            self.0.deps.ids.forget(&Side::Server(server.clone()));
        }
    }

    fn handle_message(&self, server_message: McplServerMessage) {
        let Some((id, mut reply)) = server_message.message.request else {
            return;
        };
        let (server, params) = (server_message.server, server_message.message.params);
        if server_message.message.method == Info::METHOD {
            reply.send(self.0.model(&server));
            return;
        }
        let inference = self.0.clone();
        task::spawn_detached("mcpl.inference", async move {
            let answering = inference.handle_request(&server, &params, id);
            // Cancelled, or the server disconnected: the maximum cost stays reserved.
            let answer = tokio::select! {
                answer = Box::pin(answering) => answer,
                () = reply.closed() => return,
            };
            reply.send(answer);
        });
    }
}

impl ActiveRules {
    fn new(rules: InferenceRules) -> Arc<Self> {
        let providers = Providers::new(&rules.providers);
        Arc::new(Self { rules, providers })
    }
}

impl SharedInference {
    fn active_rules(&self) -> Arc<ActiveRules> {
        let active = self.active_rules.read();
        active.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `model/info`: of the agent that last reported its model, otherwise the configured one, otherwise that of the provider
    /// that would answer the server (MCPL-109, MCPL-156).
    fn model(&self, server: &ServerId) -> Result<String, McplError> {
        let active = self.active_rules();
        let of_agent = || {
            self.deps.models.newest(|connection| {
                let agent = self.deps.agents.get(connection);
                agent.is_some_and(|agent| agent.can_see(server))
            })
        };
        let of_provider = || {
            let sets = self.deps.host.sets().load();
            let set = sets
                .get(server)?
                .sets_using(Capability::InferenceRequest)
                .next();
            let set = set.map_or("", |(set, _)| set);
            match active.rules.routes.route(server, set, None) {
                Destination::Provider(name) => Some(active.rules.providers.get(name)?.info.clone()),
                Destination::Nowhere
                | Destination::AnyAgent
                | Destination::Agent(_)
                | Destination::Sampling(_) => None,
            }
        };
        let model = of_agent().or_else(|| active.rules.model.clone());
        let model = model.or_else(of_provider).ok_or_else(|| McplError {
            code: INFERENCE_FAILED,
            message: "No model is known: no agent has said which it uses, and none is configured"
                .to_owned(),
            data: Some(r#"{"reason":"notThere"}"#.to_owned()),
        })?;
        Ok(serde_json::to_string(&model).expect("a model is always JSON"))
    }

    async fn handle_request(
        &self,
        server: &ServerId,
        params: &str,
        id: mgp_protocol::jsonrpc::RequestId,
    ) -> Result<String, McplError> {
        let request = Request::parse(params).map_err(McplError::bad_params)?;
        let set = request.feature_set.to_string();
        let admitted = {
            let sets = self.deps.host.sets().load();
            let admitted = sets.find_usable_set(server, &set, Capability::InferenceRequest);
            admitted.map(|_| ())
        };
        let read = admitted.and_then(|()| {
            let turns = request.turns().map_err(McplError::bad_params)?;
            let preferences = request.preferences().map_err(McplError::bad_params)?;
            Ok((turns, preferences))
        });
        let (turns, preferences) = match read {
            Ok(read) => read,
            Err(error) => {
                let record = McplRecord {
                    feature_set: Some(&set),
                    outcome: audit::outcome_of_error(&error),
                    reason: Some(&error.message),
                    ..McplRecord::from_server(server, Request::METHOD)
                };
                audit::record(self.deps.host.audit(), &record);
                return Err(error);
            }
        };
        let job = InferenceJob {
            active_rules: self.active_rules(),
            id: new_id(),
            server: server.clone(),
            set,
            conversation: request.conversation_id.as_deref().map(str::to_owned),
            messages: request.messages.get().to_owned(),
            preferences: request.preferences.map(|raw| raw.get().to_owned()),
            turns,
            parsed_preferences: preferences,
        };
        let streams = request.stream == Some(true);
        let parts = AnswerParts::new(&self.deps.host, server, streams.then_some(id));
        let answered = self.run(&job, Request::METHOD, parts).await;
        match answered {
            Ok(answered) => Ok(answered.answer.to_json()),
            Err(error) => Err(to_mcpl_error(&job.set, &error)),
        }
    }

    /// Runs an inference, and records its outcome.
    async fn run(
        &self,
        job: &InferenceJob,
        method: &'static str,
        mut parts: AnswerParts<'_>,
    ) -> Result<InferenceResult, InferenceError> {
        let conversation = job.conversation.as_deref();
        let to = job
            .active_rules
            .rules
            .routes
            .route(&job.server, &job.set, conversation);
        let answered = self.route(job, to, &mut parts).await;
        let words = answered.as_ref().err().map(ToString::to_string);
        let answer = answered.as_ref().ok();
        let additional = answer.map_or(json!({"to": to.to_string()}), |it| {
            json!({
                "to": to.to_string(),
                "model": it.answer.model.chars().take(256).collect::<String>(),
                "input_tokens": it.answer.usage.input_tokens,
                "output_tokens": it.answer.usage.output_tokens,
            })
        });
        let record = McplRecord {
            feature_set: Some(&job.set),
            inference: Some(&job.id),
            agent: answer.and_then(|it| it.agent.as_ref()),
            actor: McplActor::Server,
            outcome: answered
                .as_ref()
                .err()
                .map_or(Outcome::Success, error_outcome),
            reason: words.as_deref(),
            text: answer.map(|it| it.answer.content.as_bytes()),
            details: additional,
            ..McplRecord::from_server(&job.server, method)
        };
        audit::record(self.deps.host.audit(), &record);
        answered
    }

    async fn route(
        &self,
        job: &InferenceJob,
        to: &Destination,
        parts: &mut AnswerParts<'_>,
    ) -> Result<InferenceResult, InferenceError> {
        let server = &job.server;
        let depth = self.deps.hooks.depth(server);
        let depth =
            depth.map_err(|why| InferenceError::not_started(InferenceFailure::Nested, why))?;
        if *to == Destination::Nowhere {
            let words = "the operator has not said who answers this feature set";
            return Err(InferenceError::not_started(
                InferenceFailure::NoRoute,
                words,
            ));
        }
        let _open = self.open(server)?;
        let max_tokens = job
            .active_rules
            .rules
            .max_tokens(job.parsed_preferences.max_tokens);
        let reservation = self
            .reserve_tokens(job, max_usage(&job.turns, max_tokens))
            .await?;
        let answered = match to {
            Destination::Provider(name) => {
                Box::pin(self.ask_provider(job, name, (depth, max_tokens), parts)).await
            }
            Destination::AnyAgent => self.ask_agent(job, None, max_tokens, parts).await,
            Destination::Agent(agent) => self.ask_agent(job, Some(agent), max_tokens, parts).await,
            Destination::Sampling(agent) => self.ask_client(job, agent, max_tokens, parts).await,
            Destination::Nowhere => unreachable!("it was refused above"),
        };
        let used = match &answered {
            Ok(answered) => answered
                .is_usage_reported
                .then(|| answered.answer.usage.total()),
            Err(error) => (!error.was_started).then_some(0),
        };
        self.tokens.settle(reservation, used).await;
        answered
    }

    async fn reserve_tokens(
        &self,
        job: &InferenceJob,
        tokens: u64,
    ) -> Result<TokenReservation, InferenceError> {
        let server = &job.server;
        let reservation = self
            .tokens
            .reserve(&job.active_rules.rules.budget, server, tokens);
        reservation.await.map_err(|why| {
            if let ReserveError::Disk(error) = &why {
                tracing::error!(%server, %error, "the tokens of servers cannot be stored; no inference is requested");
            }
            InferenceError::not_started(InferenceFailure::Budget, why.to_string())
        })
    }

    /// Asks a provider, with the additions of the hooks before it and their changes after it.
    async fn ask_provider(
        &self,
        job: &InferenceJob,
        name: &str,
        (depth, max_tokens): (u8, u64),
        parts: &mut AnswerParts<'_>,
    ) -> Result<InferenceResult, InferenceError> {
        let Some(spec) = job.active_rules.rules.providers.get(name) else {
            let words = format!("there is no provider {name}");
            return Err(InferenceError::not_started(
                InferenceFailure::NotThere,
                words,
            ));
        };
        let inference = kernel_inference(job, depth, spec);
        let added = self.deps.hooks.before_inference(&inference).await;
        let (turns, additional) = merge_additions(added, &job.turns);
        // The requester pays for the additions of hooks.
        let reservation = match additional {
            0 => None,
            additional => Some(self.reserve_tokens(job, additional).await?),
        };
        let prompt = PromptOrder {
            turns: &turns,
            max_tokens,
            temperature: job.parsed_preferences.temperature,
            stream: parts.is_wanted(),
        };
        // No output is sent before all hooks have approved it.
        let is_held_back = self.deps.hooks.should_wait_after(&inference);
        let asked = job.active_rules.providers.request(name, &prompt, |delta| {
            if is_held_back {
                Ok(())
            } else {
                parts.add(&delta)
            }
        });
        let answered = asked.await;
        if let Some(reservation) = reservation {
            // The first reservation covers the sum of both.
            let is_without_usage = answered.as_ref().is_ok_and(|answer| answer.usage.is_none());
            let began = answered
                .as_ref()
                .err()
                .is_some_and(|error| error.was_started);
            let used = (!is_without_usage && !began).then_some(0);
            self.tokens.settle(reservation, used).await;
        }
        let answer = answered?;
        let usage = answer.usage;
        let mut answer = InferenceAnswer {
            content: answer.content,
            model: answer.model.unwrap_or_else(|| spec.model.clone()),
            finish_reason: answer.finish,
            usage: usage.unwrap_or_else(|| estimate_usage(&turns, max_tokens)),
        };
        match self.deps.hooks.after_inference(&inference, &answer).await {
            AnswerVerdict::Unchanged => {}
            AnswerVerdict::Modified(text) => answer.content = text,
            AnswerVerdict::Withheld(why) => {
                return Err(InferenceError::started(InferenceFailure::Withheld, why));
            }
        }
        if is_held_back {
            parts.send_rest(&answer.content)?;
        }
        Ok(InferenceResult {
            answer,
            is_usage_reported: usage.is_some(),
            agent: None,
        })
    }

    /// Counts an inference of a server until the guard is dropped.
    fn open(&self, server: &ServerId) -> Result<OpenInference<'_>, InferenceError> {
        let server = server.server();
        let mut open = lock(&self.open);
        let count = open.entry(server.clone()).or_default();
        if *count >= OPEN_MAX {
            let words = format!("{OPEN_MAX} inferences of this server are under way");
            return Err(InferenceError::not_started(InferenceFailure::Busy, words));
        }
        *count += 1;
        Ok(OpenInference {
            open: &self.open,
            server,
        })
    }
}

/// An inference in flight.
struct OpenInference<'a> {
    open: &'a Mutex<HashMap<ServerId, usize>>,
    server: ServerId,
}

impl Drop for OpenInference<'_> {
    fn drop(&mut self) {
        let mut open = lock(self.open);
        if let Some(count) = open.get_mut(&self.server) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.server);
            }
        }
    }
}

fn error_outcome(error: &InferenceError) -> Outcome {
    match error.reason {
        InferenceFailure::NoRoute | InferenceFailure::Nested => Outcome::Denied,
        InferenceFailure::Budget | InferenceFailure::Busy | InferenceFailure::Withheld => {
            Outcome::Blocked
        }
        InferenceFailure::TimedOut => Outcome::Timeout,
        InferenceFailure::NotThere | InferenceFailure::Failed => Outcome::Failure,
    }
}

/// The error for the server.
fn to_mcpl_error(set: &str, error: &InferenceError) -> McplError {
    let (reason, set) = (error.reason.as_str(), quote(set));
    McplError {
        code: INFERENCE_FAILED,
        message: format!("No inference: {error}"),
        data: Some(format!(r#"{{"reason":"{reason}","featureSet":{set}}}"#)),
    }
}

/// An unguessable id.
fn new_id() -> String {
    let hex = randomness::random_bytes::<16>().map(|byte| format!("{byte:02x}"));
    format!("inf_{}", hex.concat())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
