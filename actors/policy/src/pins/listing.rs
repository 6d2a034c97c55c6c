//! Lists pins for the operator.

use std::collections::BTreeMap;

use mgp_engine::policy::pins::{Definition, Effect, PinMode, PinnedTool};
use mgp_protocol::ids::ServerId;
use mgp_protocol::mgp::audit::{EventType, Outcome, TraceId};
use mgp_runtime::task;
use mgp_screening::definitions::Judgement;
use mgp_store::audit;
use serde_json::json;

use super::pin_file::PinFile;
use super::scan::Scan;
use super::{PinsHandle, ServerPins, SharedPins, lock};

/// A page of the pins of a server.
#[derive(Clone, Debug, Default)]
pub struct PinnedPage {
    /// How a change is handled; `None` before the tools were listed since the kernel started.
    pub mode: Option<PinMode>,
    /// The number of all pins.
    pub total: usize,
    /// Sorted by name, each with its approved definition, if that is stored.
    pub tools: Vec<(PinnedTool, Option<Box<str>>)>,
    /// More pins follow.
    pub has_more: bool,
}

/// The approved and the current definition of a tool, each as the server wrote it.
#[derive(Clone, Debug, Default)]
pub struct DefinitionPair {
    /// `None` if it is too long to store.
    pub approved: Option<String>,
    /// `None` if it equals the approved one, or if it was not listed since the kernel started.
    pub current: Option<Definition>,
}

impl PinsHandle {
    /// At most `limit` pins of a server, starting after `after`.
    ///
    /// # Errors
    /// The server's file cannot be used.
    pub async fn list(
        &self,
        server: &ServerId,
        after: Option<String>,
        limit: usize,
    ) -> Result<PinnedPage, String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let reading = task::run_blocking("pins.listed", move || {
            shared.with_file(&server, |mode, file| {
                let mut texts = file.texts();
                let mut tools = file.pins().pinned_tools(&server, after.as_deref());
                let listed = tools.by_ref().take(limit);
                let with_text = |tool: PinnedTool| {
                    let text = texts.remove(&tool.tool);
                    (tool, text)
                };
                PinnedPage {
                    mode,
                    total: file.pins().count(&server),
                    tools: listed.map(with_text).collect(),
                    has_more: tools.next().is_some(),
                }
            })
        });
        reading.await.unwrap_or_else(|why| Err(why.to_string()))
    }

    /// A person confirmed the effects of tools of a server, or took that back.
    ///
    /// # Errors
    /// The tools of the server are not pinned or not known; one of these is not, or waits for an approval; the file
    /// cannot be written.
    pub async fn confirm_effects(
        &self,
        server: &ServerId,
        effects: BTreeMap<String, Option<Effect>>,
        trace: TraceId,
    ) -> Result<(), String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let confirming = task::run_blocking("pins.confirm", move || {
            let server_pins = shared.server_pins(&server);
            let mut server_pins = lock(&server_pins);
            let ServerPins {
                pin_file, rules, ..
            } = &mut *server_pins;
            let known = pin_file.as_mut().zip(rules.as_ref());
            let (pin_file, rules) = known.ok_or_else(|| {
                format!("the tools of {server} are not pinned, or were not listed since the kernel started")
            })?;
            pin_file.confirm_effects(&effects, rules)?;
            shared.set_effects(&server, pin_file.effects());
            for (tool, effect) in &effects {
                let effect = effect.map_or("destructive", Effect::as_str);
                shared.record_event(
                    EventType::TOOL_APPROVED,
                    audit::operator_actor(),
                    (&server, tool),
                    &trace,
                    Outcome::Success,
                    json!({"effect": effect}),
                );
            }
            Ok(())
        });
        confirming.await.unwrap_or_else(|why| Err(why.to_string()))
    }

    /// The approved and the current definition of a pinned tool.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn definitions(
        &self,
        server: &ServerId,
        tool: String,
    ) -> Result<DefinitionPair, String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let reading = task::run_blocking("pins.definitions", move || {
            let approved = shared.with_file(&server, |_, file| file.texts().remove(&tool))?;
            let server_pins = shared.server_pins(&server);
            let current = lock(&server_pins).changed.get(&tool).cloned();
            Ok::<_, String>(DefinitionPair {
                approved: approved.map(String::from),
                current,
            })
        });
        reading.await.unwrap_or_else(|why| Err(why.to_string()))
    }
}

/// A definition with what the scan finds in it.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// The definition as the server sent it.
    pub definition: Definition,
    /// What was found.
    pub judged: Judgement,
    /// Agents do not get it now.
    pub is_blocked: bool,
}

impl PinsHandle {
    /// Judges all that the server listed last, also what is approved; `None` before its first list.
    ///
    /// # Errors
    /// The thread broke.
    pub async fn scan(&self, server: &ServerId) -> Result<Option<Vec<Scanned>>, String> {
        let (shared, server) = (self.0.clone(), server.clone());
        let scanning = task::run_blocking("pins.scan", move || {
            let server_pins = shared.server_pins(&server);
            // Not judged under the lock: it takes time, and lists wait for it.
            let listed = lock(&server_pins).listed.clone()?;
            let (blocked, names) = (shared.blocked(&server), shared.tool_names.load());
            let scan = Scan::new(&server, &names);
            let judged = listed.into_iter().map(|definition| Scanned {
                judged: scan.judge(&definition),
                is_blocked: blocked.contains(&*definition.own_name),
                definition,
            });
            Some(judged.collect())
        });
        scanning.await.map_err(|why| why.to_string())
    }
}

impl SharedPins {
    /// Reads the pins of a server, from their file if that was not read yet. Blocks.
    fn with_file<T>(
        &self,
        server: &ServerId,
        read: impl FnOnce(Option<PinMode>, &PinFile) -> T,
    ) -> Result<T, String> {
        let server_pins = self.server_pins(server);
        let server_pins = lock(&server_pins);
        let mode = server_pins.rules.as_ref().map(|rules| rules.mode);
        match &server_pins.pin_file {
            Some(file) => Ok(read(mode, file)),
            None => Ok(read(mode, &PinFile::read(&self.folder, server)?)),
        }
    }
}
