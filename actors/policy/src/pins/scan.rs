//! Judges definitions that nobody approved, before agents see them.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mgp_engine::policy::pins::{Definition, DefinitionKind};
use mgp_json::{member, unquote};
use mgp_protocol::ids::ServerId;
use mgp_screening::definitions::{Judgement, Surroundings, judge_definition, judge_instructions};

/// Names of tools by server, as they are listed.
pub(super) type ToolNames = HashMap<ServerId, Arc<BTreeSet<String>>>;

/// Judges the definitions of one server.
pub(super) struct Scan<'a> {
    server: &'a ServerId,
    names: &'a ToolNames,
    /// Compared with only if something is new.
    surroundings: OnceCell<Surroundings>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(server: &'a ServerId, names: &'a ToolNames) -> Self {
        Self {
            server,
            names,
            surroundings: OnceCell::new(),
        }
    }

    /// What the scan finds. Skills have their own guard: their texts are data of the model's task.
    pub(super) fn judge(&self, definition: &Definition) -> Judgement {
        match definition.kind {
            DefinitionKind::Tool | DefinitionKind::Prompt => {
                let surroundings = self.surroundings.get_or_init(|| {
                    let others = self
                        .names
                        .iter()
                        .filter(|(server, _)| *server != self.server);
                    Surroundings::new(others.flat_map(|(_, names)| names.iter().cloned()))
                });
                judge_definition(&definition.text, surroundings)
            }
            DefinitionKind::Instructions => {
                let text = member(&definition.text, "instructions").and_then(unquote);
                judge_instructions(text.as_deref().unwrap_or_default())
            }
            DefinitionKind::Skill | DefinitionKind::NestedSkill => Judgement::default(),
        }
    }
}
