//! Inferences that servers ask for (MCPL §11), and `model/info` (§12).
//!
//! Who answers is the operator's rule: an agent that is a host, the client of an agent, a provider, or nobody. What it
//! may cost at most is set aside before anything goes; each request has an answer within a bounded time.

mod agents;
pub mod around;
mod hooked;
mod models;
mod parts;
mod prompt;
mod providers;
mod pushed;
mod tokens;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_callers::directory::Directory;
use mgp_mcpl_engine::conversations::Side;
use mgp_mcpl_engine::inference::InferenceRules;
use mgp_mcpl_engine::inference::budget::{SetAside, ceiling};
use mgp_mcpl_engine::inference::provider::PromptOrder;
use mgp_mcpl_engine::inference::routes::Destination;
use mgp_protocol::ids::{AgentId, ConnectionId, ServerId};
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::inference::{
    InferenceAnswer, InferencePreferences, NOT_INFERRED, NotInferred, PromptTurn, Request,
};
use mgp_protocol::mcpl::model::Info;
use mgp_protocol::mgp::audit::Outcome;
use mgp_protocol::splice::quoted;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::{randomness, task};
use serde_json::json;

use self::around::{AroundInference, Passage};
use self::parts::AnswerParts;
use self::prompt::{own, roughly, with};
use self::providers::{NoAnswer, Providers};
use self::tokens::NotSetAside;
use crate::agents::McplAgents;
use crate::audit::{self, McplActor, McplRecord};
use crate::conversations::Conversations;
use crate::host::{FromMcplServer, HostEvent, McplHost, McplNoun};

pub use self::hooked::passed_ids;
pub use self::models::SeenModels;
pub use self::pushed::{PublishedAnswer, PushedInference};
pub use self::tokens::{TakenTokens, UnreadableTokens};

/// Inferences of one server at once, those that wait in a line included; a further one is refused.
const OPEN_MAX: usize = 8;
/// Conversations whose agent is remembered; then all are forgotten, and each finds an agent again.
const STAYING_MAX: usize = 4096;

/// Answers inferences. Clones share everything.
#[derive(Clone, Debug)]
pub struct InferenceHandle(Arc<SharedInference>);

/// What it is made of.
#[derive(Debug)]
pub struct InferenceFrom {
    /// Who is a server, and with which sets.
    pub host: Arc<McplHost>,
    /// Which agents can be asked.
    pub agents: Arc<McplAgents>,
    /// Which clients can.
    pub directory: Arc<Directory>,
    /// Ids, as each side is told them.
    pub ids: Conversations,
    /// The models of agents.
    pub models: SeenModels,
    /// What stands before and behind the kernel's own inferences.
    pub around: Arc<dyn AroundInference>,
    /// Takes the answers to push events that are to be published.
    pub publish: EventSink<PublishedAnswer>,
}

/// The rules in force, and the lines at the providers they name.
#[derive(Debug)]
struct Ruled {
    rules: InferenceRules,
    providers: Providers,
}

#[derive(Debug)]
struct SharedInference {
    /// What is under way goes on by the rules that it began with.
    ruled: RwLock<Arc<Ruled>>,
    from: InferenceFrom,
    tokens: TakenTokens,
    /// How many each server has under way.
    open: Mutex<HashMap<ServerId, usize>>,
    /// The agent that a conversation stays with.
    staying: Mutex<BTreeMap<(ServerId, String), ConnectionId>>,
}

/// An inference that somebody asked for.
struct InferenceOrder {
    ruled: Arc<Ruled>,
    /// The kernel's id of it.
    id: String,
    server: ServerId,
    set: String,
    conversation: Option<String>,
    turns: Vec<PromptTurn>,
    /// As the server wrote them.
    messages: String,
    preferences: Option<String>,
    wishes: InferencePreferences,
}

/// Who answered, and what.
struct AnsweredOrder {
    answer: InferenceAnswer,
    /// Whether the numbers are those of who answered.
    counted: bool,
    agent: Option<AgentId>,
}

impl InferenceHandle {
    /// By these rules.
    #[must_use]
    pub fn new(tokens: TakenTokens, rules: InferenceRules, from: InferenceFrom) -> Self {
        Self(Arc::new(SharedInference {
            ruled: RwLock::new(Ruled::new(rules)),
            tokens,
            from,
            open: Mutex::default(),
            staying: Mutex::default(),
        }))
    }

    /// Other rules hold for what is asked from now on.
    pub fn configure(&self, rules: InferenceRules) {
        let mut ruled = self.0.ruled.write().unwrap_or_else(PoisonError::into_inner);
        if ruled.rules != rules {
            *ruled = Ruled::new(rules);
        }
    }

    /// What it takes of what servers say. Holds itself weakly.
    #[must_use]
    pub fn noun(&self) -> McplNoun {
        let (takes, hears) = (Arc::downgrade(&self.0), Arc::downgrade(&self.0));
        McplNoun {
            methods: &[Request::METHOD, Info::METHOD],
            takes: EventSink::new(move |said| {
                if let Some(inference) = takes.upgrade() {
                    Self(inference).said(said);
                }
            }),
            hears: EventSink::new(move |event| {
                if let Some(inference) = hears.upgrade() {
                    Self(inference).heard(&event);
                }
            }),
        }
    }

    fn heard(&self, event: &HostEvent) {
        if let HostEvent::Gone(server) = event
            && !self.0.from.host.speaks(server)
        {
            self.0.from.ids.forget(&Side::Server(server.clone()));
        }
    }

    fn said(&self, said: FromMcplServer) {
        let Some((id, mut reply)) = said.message.asked else {
            return;
        };
        let (server, params) = (said.server, said.message.params);
        if said.message.method == Info::METHOD {
            reply.send(self.0.model(&server));
            return;
        }
        let inference = self.0.clone();
        task::detached("mcpl.inference", async move {
            let answering = inference.requested(&server, &params, id);
            // Taken back, or the server is gone: what it may have cost stays set aside.
            let answer = tokio::select! {
                answer = Box::pin(answering) => answer,
                () = reply.closed() => return,
            };
            reply.send(answer);
        });
    }
}

impl Ruled {
    fn new(rules: InferenceRules) -> Arc<Self> {
        let providers = Providers::new(&rules.providers);
        Arc::new(Self { rules, providers })
    }
}

impl SharedInference {
    fn ruled(&self) -> Arc<Ruled> {
        let ruled = self.ruled.read();
        ruled.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `model/info`: of the agent that said last which it uses, else as configured, else of the provider that would
    /// answer the server (MCPL-109, MCPL-156).
    fn model(&self, server: &ServerId) -> Result<String, McplError> {
        let ruled = self.ruled();
        let of_agent = || {
            self.from.models.newest(|connection| {
                let agent = self.from.agents.get(connection);
                agent.is_some_and(|agent| agent.sees(server))
            })
        };
        let of_provider = || {
            let sets = self.from.host.sets().load();
            let set = sets.of(server)?.using(Capability::InferenceRequest).next();
            let set = set.map_or("", |(set, _)| set);
            match ruled.rules.routes.route(server, set, None) {
                Destination::Provider(name) => Some(ruled.rules.providers.get(name)?.info.clone()),
                Destination::Nowhere
                | Destination::AnyAgent
                | Destination::Agent(_)
                | Destination::Sampling(_) => None,
            }
        };
        let model = of_agent().or_else(|| ruled.rules.model.clone());
        let model = model.or_else(of_provider).ok_or_else(|| McplError {
            code: NOT_INFERRED,
            message: "No model is known: no agent has said which it uses, and none is configured"
                .to_owned(),
            data: Some(r#"{"reason":"notThere"}"#.to_owned()),
        })?;
        Ok(serde_json::to_string(&model).expect("a model is always JSON"))
    }

    async fn requested(
        &self,
        server: &ServerId,
        params: &str,
        id: mgp_protocol::jsonrpc::RequestId,
    ) -> Result<String, McplError> {
        let request = Request::read(params).map_err(McplError::bad_params)?;
        let set = request.feature_set.to_string();
        let admitted = {
            let sets = self.from.host.sets().load();
            let admitted = sets.admits(server, &set, Capability::InferenceRequest);
            admitted.map(|_| ())
        };
        let read = admitted.and_then(|()| {
            let turns = request.turns().map_err(McplError::bad_params)?;
            let wishes = request.preferences().map_err(McplError::bad_params)?;
            Ok((turns, wishes))
        });
        let (turns, wishes) = match read {
            Ok(read) => read,
            Err(error) => {
                let record = McplRecord {
                    feature_set: Some(&set),
                    outcome: audit::of_error(&error),
                    reason: Some(&error.message),
                    ..McplRecord::of_server(server, Request::METHOD)
                };
                audit::record(self.from.host.audit(), &record);
                return Err(error);
            }
        };
        let order = InferenceOrder {
            ruled: self.ruled(),
            id: new_id(),
            server: server.clone(),
            set,
            conversation: request.conversation_id.as_deref().map(str::to_owned),
            messages: request.messages.get().to_owned(),
            preferences: request.preferences.map(|raw| raw.get().to_owned()),
            turns,
            wishes,
        };
        let streams = request.stream == Some(true);
        let parts = AnswerParts::new(&self.from.host, server, streams.then_some(id));
        let answered = self.run(&order, Request::METHOD, parts).await;
        match answered {
            Ok(answered) => Ok(answered.answer.to_json()),
            Err(none) => Err(error(&order.set, &none)),
        }
    }

    /// Runs one, and writes down what became of it.
    async fn run(
        &self,
        order: &InferenceOrder,
        method: &'static str,
        mut parts: AnswerParts<'_>,
    ) -> Result<AnsweredOrder, NoAnswer> {
        let conversation = order.conversation.as_deref();
        let to = order
            .ruled
            .rules
            .routes
            .route(&order.server, &order.set, conversation);
        let answered = self.routed(order, to, &mut parts).await;
        let words = answered.as_ref().err().map(ToString::to_string);
        let answer = answered.as_ref().ok();
        let more = answer.map_or(json!({"to": to.to_string()}), |it| {
            json!({
                "to": to.to_string(),
                "model": it.answer.model.chars().take(256).collect::<String>(),
                "input_tokens": it.answer.usage.input_tokens,
                "output_tokens": it.answer.usage.output_tokens,
            })
        });
        let record = McplRecord {
            feature_set: Some(&order.set),
            inference: Some(&order.id),
            agent: answer.and_then(|it| it.agent.as_ref()),
            by: McplActor::Server,
            outcome: answered.as_ref().err().map_or(Outcome::Success, outcome),
            reason: words.as_deref(),
            text: answer.map(|it| it.answer.content.as_bytes()),
            more,
            ..McplRecord::of_server(&order.server, method)
        };
        audit::record(self.from.host.audit(), &record);
        answered
    }

    async fn routed(
        &self,
        order: &InferenceOrder,
        to: &Destination,
        parts: &mut AnswerParts<'_>,
    ) -> Result<AnsweredOrder, NoAnswer> {
        let server = &order.server;
        let depth = self.from.around.depth(server);
        let depth = depth.map_err(|why| NoAnswer::before(NotInferred::Nested, why))?;
        if *to == Destination::Nowhere {
            let words = "the operator has not said who answers this feature set";
            return Err(NoAnswer::before(NotInferred::NoRoute, words));
        }
        let _open = self.opened(server)?;
        let max_tokens = order.ruled.rules.max_tokens(order.wishes.max_tokens);
        let aside = self
            .set_aside(order, ceiling(&order.turns, max_tokens))
            .await?;
        let answered = match to {
            Destination::Provider(name) => {
                Box::pin(self.by_provider(order, name, (depth, max_tokens), parts)).await
            }
            Destination::AnyAgent => self.by_agent(order, None, max_tokens, parts).await,
            Destination::Agent(agent) => self.by_agent(order, Some(agent), max_tokens, parts).await,
            Destination::Sampling(agent) => self.by_sampling(order, agent, max_tokens, parts).await,
            Destination::Nowhere => unreachable!("it was refused above"),
        };
        let took = match &answered {
            Ok(answered) => answered.counted.then(|| answered.answer.usage.total()),
            Err(none) => (!none.began).then_some(0),
        };
        self.tokens.settle(aside, took).await;
        answered
    }

    async fn set_aside(&self, order: &InferenceOrder, tokens: u64) -> Result<SetAside, NoAnswer> {
        let server = &order.server;
        let aside = self
            .tokens
            .set_aside(&order.ruled.rules.budget, server, tokens);
        aside.await.map_err(|why| {
            if let NotSetAside::Disk(error) = &why {
                tracing::error!(%server, %error, "the tokens that servers take cannot be written down; nothing is asked");
            }
            NoAnswer::before(NotInferred::Budget, why.to_string())
        })
    }

    /// Asks a provider, with what hooks add before and make of it behind.
    async fn by_provider(
        &self,
        order: &InferenceOrder,
        name: &str,
        (depth, max_tokens): (u8, u64),
        parts: &mut AnswerParts<'_>,
    ) -> Result<AnsweredOrder, NoAnswer> {
        let Some(spec) = order.ruled.rules.providers.get(name) else {
            let words = format!("there is no provider {name}");
            return Err(NoAnswer::before(NotInferred::NotThere, words));
        };
        let own = own(order, depth, spec);
        let added = self.from.around.before(&own).await;
        let (turns, more) = with(added, &order.turns);
        // What hooks add is paid for by who asked.
        let aside = match more {
            0 => None,
            more => Some(self.set_aside(order, more).await?),
        };
        let prompt = PromptOrder {
            turns: &turns,
            max_tokens,
            temperature: order.wishes.temperature,
            stream: parts.wanted(),
        };
        // Nothing leaves before all have let it through.
        let held = self.from.around.is_due(&own);
        let asked = order
            .ruled
            .providers
            .ask(name, &prompt, |delta| match held {
                true => Ok(()),
                false => parts.add(&delta),
            });
        let answered = asked.await;
        if let Some(aside) = aside {
            // The first part has the sum of both.
            let whole = answered.as_ref().is_ok_and(|answer| answer.usage.is_none());
            let began = answered.as_ref().err().is_some_and(|none| none.began);
            let took = (!whole && !began).then_some(0);
            self.tokens.settle(aside, took).await;
        }
        let answer = answered?;
        let usage = answer.usage;
        let mut answer = InferenceAnswer {
            content: answer.content,
            model: answer.model.unwrap_or_else(|| spec.model.clone()),
            finish_reason: answer.finish,
            usage: usage.unwrap_or_else(|| roughly(&turns, max_tokens)),
        };
        match self.from.around.after(&own, &answer).await {
            Passage::Unchanged => {}
            Passage::Modified(text) => answer.content = text,
            Passage::Withheld(why) => {
                return Err(NoAnswer::after(NotInferred::Withheld, why));
            }
        }
        if held {
            parts.whole(&answer.content)?;
        }
        Ok(AnsweredOrder {
            answer,
            counted: usage.is_some(),
            agent: None,
        })
    }

    /// One more inference of a server; it is one less when this is dropped.
    fn opened(&self, server: &ServerId) -> Result<OpenInference<'_>, NoAnswer> {
        let server = server.server();
        let mut open = lock(&self.open);
        let count = open.entry(server.clone()).or_default();
        if *count >= OPEN_MAX {
            let words = format!("{OPEN_MAX} inferences of this server are under way");
            return Err(NoAnswer::before(NotInferred::Busy, words));
        }
        *count += 1;
        Ok(OpenInference {
            open: &self.open,
            server,
        })
    }
}

/// One inference under way.
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

fn outcome(none: &NoAnswer) -> Outcome {
    match none.reason {
        NotInferred::NoRoute | NotInferred::Nested => Outcome::Denied,
        NotInferred::Budget | NotInferred::Busy | NotInferred::Withheld => Outcome::Blocked,
        NotInferred::TimedOut => Outcome::Timeout,
        NotInferred::NotThere | NotInferred::Failed => Outcome::Failure,
    }
}

/// The error a server reads.
fn error(set: &str, none: &NoAnswer) -> McplError {
    let (reason, set) = (none.reason.word(), quoted(set));
    McplError {
        code: NOT_INFERRED,
        message: format!("No inference: {none}"),
        data: Some(format!(r#"{{"reason":"{reason}","featureSet":{set}}}"#)),
    }
}

/// An id that nobody can guess.
fn new_id() -> String {
    let hex = randomness::bytes::<16>().map(|byte| format!("{byte:02x}"));
    format!("inf_{}", hex.concat())
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
