//! Push events and their delivery (MCPL §9): checked, persisted before anybody receives them, delivered once, and
//! answered the same at each retry.
//!
//! Recipients are tried in this order: the kernel's own inference, if the operator configured that for the set; else
//! the agents that are MCPL hosts and take push events, the oldest connection first, until one takes it. All others
//! receive it on the bus. It is accepted when one of these took it, or when its channel has a subscriber.

mod delivery;

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mgp_mcpl_engine::names;
use mgp_mcpl_engine::push::limits::PushRates;
use mgp_mcpl_engine::push::memory::{EventBody, MemoryEntry, PushLookup, PushMemory};
use mgp_mcpl_engine::push::{BYTES_MAX, PushPolicy, PushRule, channel_name, parse_iso8601};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mcp::Method;
use mgp_protocol::mcpl::McplError;
use mgp_protocol::mcpl::content::Content;
use mgp_protocol::mcpl::feature_sets::Capability;
use mgp_protocol::mcpl::push::{Event, PushAnswer};
use mgp_protocol::mgp::audit::Outcome;
use mgp_runtime::event_sink::EventSink;
use mgp_runtime::mailbox::Reply;
use mgp_runtime::task;
use mgp_runtime::time::{monotonic_now, unix_ms};
use mgp_servers::link::McplAnswer;
use mgp_servers::server::ServerTable;
use mgp_store::journal::{AppendError, Journal, JournalError};
use mgp_store::witnesses::Witness;
use mgp_tools::events::{EventsHandle, PushChannel};

use self::delivery::DeliveryOutcome;
use crate::agents::McplAgents;
use crate::audit::outcome_of_error;
use crate::hooks::IdMapper;
use crate::host::{HostEvent, McplHandler, McplHost, McplServerMessage};

/// The journal in the data folder.
pub const JOURNAL: &str = "mcpl-push.journal";
/// What the journal is called in its own header.
const KIND: &str = "mgp mcpl push events";

/// An event that is to lead to an inference of the kernel's own.
#[derive(Debug)]
pub struct PushInference {
    /// Who pushed it.
    pub server: ServerId,
    /// In the name of which of its sets.
    pub set: String,
    /// The server's id of the event.
    pub event_id: String,
    /// Where it comes from, as the server put it.
    pub origin: Option<String>,
    /// What it says.
    pub content: Content,
    /// Answered with the id of the inference as soon as it has begun, or with why there is none.
    pub started: Reply<Result<String, String>>,
}

/// Takes push events of servers.
#[derive(Debug, Clone)]
pub struct PushHandle(Arc<SharedPush>);

/// The events that earlier runs of the kernel have taken.
#[derive(Debug)]
pub struct StoredPushes {
    memory: PushMemory,
    journal: Journal,
    loss: Option<String>,
}

/// What push events are handed to.
#[derive(Debug)]
pub struct PushTargets {
    /// Who is a server, and with which sets.
    pub host: Arc<McplHost>,
    /// Who is asked.
    pub agents: Arc<McplAgents>,
    /// Where all others hear of it.
    pub events: EventsHandle,
    /// Begins inferences of the kernel's own.
    pub inference: EventSink<PushInference>,
    /// Ids of inferences, as the server is told them.
    pub ids: IdMapper,
    /// Whose an instance is.
    pub servers: Arc<ServerTable>,
}

#[derive(Debug)]
struct SharedPush {
    targets: PushTargets,
    policy: RwLock<Arc<PushPolicy>>,
    journal: Journal,
    state: Mutex<PushState>,
}

#[derive(Debug, Default)]
struct PushState {
    memory: PushMemory,
    rates: PushRates,
    /// Retries that came while an event was in flight.
    waiters: HashMap<(ServerId, String), Vec<Reply<McplAnswer>>>,
}

/// An event that is new, and what it takes to hand it on.
struct NewPush {
    server: ServerId,
    params: String,
    content: Content,
    rule: PushRule,
}

impl StoredPushes {
    /// Opens the memory in the data folder. Blocks.
    ///
    /// # Errors
    /// [`JournalError`], as a text for the person who starts the kernel.
    pub fn open(data_dir: &Path, witness: Witness) -> Result<Self, JournalError> {
        let opened = Journal::open_witnessed(&data_dir.join(JOURNAL), KIND, witness)?;
        let shortened = opened.truncated.map(|shortened| {
            format!(
                "{shortened}: push events that were answered may be handed on once more; put a copy of the file back and start the kernel again, or run `mgp down`, then `mgp accept {JOURNAL}`"
            )
        });
        if let Some(cut) = opened.torn_tail {
            tracing::warn!("{cut}");
        }
        let (memory, unread) = PushMemory::restore(&opened.entries, unix_ms());
        if unread > 0 {
            tracing::warn!(
                unread,
                "some push events that were answered are not known any more"
            );
        }
        Ok(Self {
            memory,
            journal: opened.journal,
            loss: shortened,
        })
    }

    /// What is lost of them, and what to do: in words.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    /// Compares the memory with its witness while no kernel has it open, and changes neither; blocks.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn compare(data_dir: &Path, witness: &Witness) -> Result<Option<String>, JournalError> {
        let shortened = Journal::compare(&data_dir.join(JOURNAL), KIND, witness)?;
        Ok(shortened.map(|it| it.to_string()))
    }
}

impl PushHandle {
    /// Takes events by these rules.
    #[must_use]
    pub fn new(kept: StoredPushes, policy: PushPolicy, to: PushTargets) -> Self {
        let state = PushState {
            memory: kept.memory,
            ..PushState::default()
        };
        Self(Arc::new(SharedPush {
            targets: to,
            policy: RwLock::new(Arc::new(policy)),
            journal: kept.journal,
            state: Mutex::new(state),
        }))
    }

    /// Takes `push/event` of all servers.
    #[must_use]
    pub fn handler(&self) -> McplHandler {
        let (takes, hears) = (self.clone(), self.clone());
        McplHandler {
            methods: &[Event::METHOD],
            messages: EventSink::new(move |said: McplServerMessage| {
                if let Some((_, reply)) = said.message.request {
                    takes.handle_event(said.server, said.message.params, reply);
                }
            }),
            events: EventSink::new(move |event| match event {
                HostEvent::Connected(server)
                | HostEvent::Disconnected(server)
                | HostEvent::SetsChanged(server) => {
                    hears.sets_changed(&server);
                }
            }),
        }
    }

    /// Other rules hold from now on.
    pub fn set_policy(&self, policy: PushPolicy) {
        *self
            .0
            .policy
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// The sets of a server changed, or it disconnected: its channels on the bus are those of its enabled sets that
    /// push.
    pub(crate) fn sets_changed(&self, server: &ServerId) {
        let sets = self.0.targets.host.sets().load();
        let using = sets.get(server).map(|sets| {
            let using = sets.sets_using(Capability::PushEvents);
            let channels = using.map(|(name, held)| PushChannel {
                set: name.to_owned(),
                channel: channel_name(&server.server(), name),
                description: held.set.description.clone(),
            });
            channels.collect::<Vec<_>>()
        });
        let channels = using.unwrap_or_default();
        self.0
            .targets
            .events
            .set_push_channels(server.clone(), channels);
    }

    /// `push/event`. Answered when somebody has taken it, or nobody will.
    pub(crate) fn handle_event(&self, server: ServerId, params: String, reply: Reply<McplAnswer>) {
        let Some((open, written)) = self.0.begin_push(server, params, reply) else {
            return;
        };
        task::spawn_detached("mcpl.push", async move {
            let shared = open.shared.clone();
            let outcome = match written.await {
                Ok(()) => shared.targets.deliver(&shared.policy(), &open.new).await,
                // Nobody has heard of it.
                Err(error) => DeliveryOutcome::not_delivered(format!(
                    "the event cannot be written down ({error}), and is not taken before it is"
                )),
            };
            open.conclude(outcome);
        });
    }
}

/// Resolves when the entry of an event is on disk.
type EntryStored = Pin<Box<dyn Future<Output = Result<(), AppendError>> + Send>>;

/// An event that is under way. However it ends, it is answered.
struct InFlightPush {
    shared: Arc<SharedPush>,
    new: NewPush,
    reply: Option<Reply<McplAnswer>>,
}

impl InFlightPush {
    fn conclude(mut self, outcome: DeliveryOutcome) {
        self.set_outcome(outcome);
    }

    fn set_outcome(&mut self, outcome: DeliveryOutcome) {
        if let Some(reply) = self.reply.take() {
            self.shared.conclude(&self.new, outcome, reply);
        }
    }
}

impl Drop for InFlightPush {
    fn drop(&mut self) {
        self.set_outcome(DeliveryOutcome::unknown_outcome(
            "handing the event on broke off",
        ));
    }
}

/// What is answered at once.
enum ImmediateAnswer {
    Error(McplError),
    Answer(PushAnswer),
}

impl SharedPush {
    fn lock(&self) -> MutexGuard<'_, PushState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn policy(&self) -> Arc<PushPolicy> {
        let policy = self.policy.read();
        policy.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers at once what can be; the rest is under way.
    fn begin_push(
        self: &Arc<Self>,
        server: ServerId,
        params: String,
        reply: Reply<McplAnswer>,
    ) -> Option<(InFlightPush, EntryStored)> {
        let mut reply = Some(reply);
        let begun = self.check(&server, &params).and_then(|(content, rule)| {
            let written = self.remember((&server, &params), &rule, &mut reply)?;
            Ok(written.map(|written| (content, rule, written)))
        });
        let answer = match begun {
            Ok(None) => return None,
            Ok(Some((content, rule, written))) => {
                let new = NewPush {
                    server,
                    params,
                    content,
                    rule,
                };
                let open = InFlightPush {
                    shared: self.clone(),
                    new,
                    reply,
                };
                return Some((open, written));
            }
            Err(ImmediateAnswer::Error(error)) => Err(error),
            Err(ImmediateAnswer::Answer(answer)) => Ok(answer.to_json()),
        };
        if let Some(reply) = reply {
            reply.send(answer);
        }
        None
    }

    /// What can be said without looking into the memory.
    fn check(
        &self,
        server: &ServerId,
        params: &str,
    ) -> Result<(Content, PushRule), ImmediateAnswer> {
        let bad = |why: String| ImmediateAnswer::Error(McplError::bad_params(why));
        let event = Event::parse(params).map_err(bad)?;
        let sets = self.targets.host.sets().load();
        let admitted = sets.find_usable_set(server, &event.feature_set, Capability::PushEvents);
        admitted.map_err(|error| {
            self.targets.record(
                server,
                &event,
                outcome_of_error(&error),
                Some(&error.message),
            );
            ImmediateAnswer::Error(error)
        })?;
        if parse_iso8601(&event.timestamp).is_none() {
            return Err(bad(
                "timestamp is no moment of ISO 8601, like 2026-01-23T10:30:00Z".into(),
            ));
        }
        let content = Content::parse(event.content().get());
        let content = content.map_err(|why| bad(format!("payload.content: {why}")))?;
        if params.len() > BYTES_MAX {
            return Err(ImmediateAnswer::Answer(PushAnswer::reject(format!(
                "the event has {} bytes; at most {BYTES_MAX} are taken: name a resource that holds the rest",
                params.len()
            ))));
        }
        let policy = self.policy();
        let rule = policy.rule(&names::set_name(&server.server(), &event.feature_set));
        Ok((content, rule.clone()))
    }

    /// Records a new event, and returns the write of its entry; none if the event is already in flight, and `reply`
    /// waits for its answer.
    fn remember(
        &self,
        (server, params): (&ServerId, &str),
        rule: &PushRule,
        reply: &mut Option<Reply<McplAnswer>>,
    ) -> Result<Option<EntryStored>, ImmediateAnswer> {
        let event = Event::parse(params).expect("it was read before");
        let (body, policy) = (EventBody::from_event(&event), self.policy());
        let (id, now_ms) = (&*event.event_id, unix_ms());
        let no = |why: &str| Err(ImmediateAnswer::Answer(PushAnswer::reject(why)));
        let mut guard = self.lock();
        let state = &mut *guard;
        let entry = match state.memory.begin_event(server, id, body, now_ms) {
            PushLookup::New(entry) => entry,
            PushLookup::Answered(answer) => return Err(ImmediateAnswer::Answer(answer)),
            PushLookup::InFlight => {
                let waiting = state.waiters.entry((server.clone(), id.to_owned()));
                waiting.or_default().extend(reply.take());
                return Ok(None);
            }
            PushLookup::Conflict => {
                return no(
                    "another event of this server had this eventId, and said something else: each event needs an id of its own",
                );
            }
            PushLookup::Full => {
                return no("too many events of this server are under way: send it again later");
            }
        };
        let set = (server, &*event.feature_set);
        if let Err(why) = state
            .rates
            .try_take(set, (&policy, rule), (monotonic_now(), now_ms))
        {
            // Nothing of it is in the journal yet.
            let _ = state.memory.release(server, id);
            drop(guard);
            self.targets
                .record(server, &event, Outcome::Denied, Some(&why));
            return no(&why);
        }
        // Under the lock: the entries of the journal have the order of what they say.
        Ok(Some(Box::pin(
            self.journal.enqueue_append(entry.to_bytes()),
        )))
    }

    /// It is answered, to all requesters, once the answer is on disk: a retry after a crash gets the same one.
    fn conclude(&self, new: &NewPush, outcome: DeliveryOutcome, reply: Reply<McplAnswer>) {
        let event = Event::parse(&new.params).expect("it was read before");
        let (waiting, written) = {
            let mut guard = self.lock();
            let state = &mut *guard;
            let (server, id) = (&new.server, &*event.event_id);
            let entry = if outcome.is_released {
                state.memory.release(server, id)
            } else {
                state.memory.set_answer(server, id, &outcome.answer)
            };
            let appended = entry.map(|entry| self.journal.enqueue_append(entry.to_bytes()));
            let compacted = state.memory.compact().map(|all| {
                let all = all.iter().map(MemoryEntry::to_bytes).collect();
                self.journal.enqueue_replace(all)
            });
            let waiting = state.waiters.remove(&(server.clone(), id.to_owned()));
            (waiting, (appended, compacted))
        };
        let text = outcome.answer.to_json();
        task::spawn_detached("mcpl.push_journal", async move {
            if let Some(appended) = written.0 {
                warn_if_not_written(appended.await);
            }
            for also in waiting.into_iter().flatten() {
                also.send(Ok(text.clone()));
            }
            reply.send(Ok(text));
            if let Some(compacted) = written.1 {
                warn_if_not_written(compacted.await);
            }
        });
    }
}

/// The delivery took effect, so it is answered all the same; a later start knows only that it was begun.
fn warn_if_not_written(written: Result<(), AppendError>) {
    if let Err(error) = written {
        tracing::warn!(%error, "the answer to a push event is not written down");
    }
}
