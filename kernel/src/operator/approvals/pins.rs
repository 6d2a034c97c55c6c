//! `mgp/servers/pins/*`: pinned definitions and their changes.

use mgp_callers::request::{Outcome, Request};
use mgp_engine::policy::pins::{DefinitionKind, Effect, PinMode, PinnedTool};
use mgp_json::{member, unquote};
use mgp_policy::PinsHandle;
use mgp_protocol::mgp::servers::pins::{self, Confirmed, Definitions, PAGE_MAX, PinnedTools};
use mgp_protocol::refusal::Refusal;
use mgp_screening::definitions::HOLD_SCORE;

use crate::operator::{Operator, json, read};

impl Operator {
    /// The pins of tools, or of skills.
    fn pins_of(&self, skills: bool) -> &PinsHandle {
        match skills {
            true => self.name_sources.skills.pins(),
            false => &self.pins,
        }
    }

    /// `mgp/servers/pins/list`.
    ///
    /// # Errors
    /// Unknown server; its pins cannot be read.
    pub(crate) async fn list_pins(&self, request: &Request) -> Outcome {
        let pins::List {
            id,
            skills,
            after,
            limit,
        } = read(request)?;
        let handle = self.find_server(&id)?;
        let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let pins = self.pins_of(skills);
        let page = pins.list(&handle.id, after, limit).await;
        let page = page.map_err(Refusal::Internal)?;
        json(&PinnedTools {
            mode: page.mode.map(mode_label),
            total: page.total as u64,
            pins: page
                .tools
                .into_iter()
                .map(|(tool, text)| to_protocol_pin(tool, text.as_deref()))
                .collect(),
            has_more: page.has_more,
        })
    }

    /// `mgp/servers/pins/show`.
    ///
    /// # Errors
    /// As of [`Self::list_pins`].
    pub(crate) async fn show_pin(&self, request: &Request) -> Outcome {
        let pins::Show { id, tool, skills } = read(request)?;
        let handle = self.find_server(&id)?;
        let pair = self.pins_of(skills).definitions(&handle.id, tool).await;
        let pair = pair.map_err(Refusal::Internal)?;
        json(&Definitions {
            approved: pair.approved,
            now: pair.current.map(|tool| tool.text.to_string()),
        })
    }

    /// `mgp/servers/pins/scan`.
    ///
    /// # Errors
    /// Unknown server; it was not listed since the kernel started.
    pub(crate) async fn scan_definitions(&self, request: &Request) -> Outcome {
        let pins::Scan { id } = read(request)?;
        let handle = self.find_server(&id)?;
        let scanned = self
            .pins
            .scan(&handle.id)
            .await
            .map_err(Refusal::Internal)?;
        let scanned = scanned.ok_or_else(|| {
            Refusal::BadParams(format!(
                "{id} was not listed since the kernel started; start it with `mgp servers start {id}`"
            ))
        })?;
        let total = scanned.len() as u64;
        let mut found: Vec<_> = scanned
            .into_iter()
            .filter(|it| it.judged.score > 0)
            .collect();
        found.sort_by_key(|it| std::cmp::Reverse(it.judged.score));
        let found = found.into_iter().take(PAGE_MAX).map(|it| {
            let reasons = it
                .judged
                .findings
                .into_iter()
                .map(|finding| pins::ScanReason {
                    act: finding.act.as_str().into(),
                    title: finding.act.to_string(),
                    weight: finding.weight,
                    place: finding.place,
                    text: finding.text,
                });
            pins::ScannedDefinition {
                kind: kind_label(it.definition.kind).into(),
                name: it.definition.own_name.to_string(),
                score: it.judged.score,
                blocked: it.is_blocked,
                reasons: reasons.collect(),
            }
        });
        json(&pins::Scanned {
            threshold: HOLD_SCORE,
            total,
            found: found.collect(),
        })
    }

    /// `mgp/servers/pins/confirm`.
    ///
    /// # Errors
    /// Unknown server; a tool that is not pinned or waits for an approval; the pins cannot be written.
    pub(crate) async fn confirm_effects(&self, request: &Request) -> Outcome {
        let pins::Confirm { id, effects } = read(request)?;
        let handle = self.find_server(&id)?;
        let tools: Vec<String> = effects.keys().cloned().collect();
        let effects = effects
            .into_iter()
            .map(|(tool, word)| Ok((tool, parse_effect(word)?)))
            .collect::<Result<_, Refusal>>()?;
        let trace = request.trace.id.clone();
        let confirmed = self.pins.confirm_effects(&handle.id, effects, trace).await;
        confirmed.map_err(Refusal::BadParams)?;
        json(&Confirmed { tools })
    }
}

/// The effect of this word; `None` takes a confirmation back.
fn parse_effect(word: Option<String>) -> Result<Option<Effect>, Refusal> {
    match word.as_deref() {
        None => Ok(None),
        Some("read") => Ok(Some(Effect::Read)),
        Some("write") => Ok(Some(Effect::Write)),
        Some(other) => Err(Refusal::BadParams(format!(
            "an effect is `read`, `write` or `null`, and not {other:?}"
        ))),
    }
}

const fn kind_label(kind: DefinitionKind) -> &'static str {
    match kind {
        DefinitionKind::Tool => "tool",
        DefinitionKind::Prompt => "prompt",
        DefinitionKind::Instructions => "instructions",
        DefinitionKind::Skill | DefinitionKind::NestedSkill => "skill",
    }
}

fn mode_label(mode: PinMode) -> String {
    match mode {
        PinMode::Off => "off",
        PinMode::Warn => "warn",
        PinMode::Block => "block",
    }
    .into()
}

fn to_protocol_pin(pin: PinnedTool, definition: Option<&str>) -> pins::PinnedTool {
    let word = |effect: Effect| effect.as_str().to_owned();
    let described = definition.map(|text| member(text, "frontmatter").unwrap_or(text));
    let description = described.and_then(|text| member(text, "description"));
    let description = description.and_then(unquote);
    pins::PinnedTool {
        tool: pin.tool,
        pin: pin.approved.to_string(),
        approved_by: pin.approved_by,
        now: pin.pending.map(|pin| pin.to_string()),
        changed: pin.changed.iter().map(ToString::to_string).collect(),
        denied: pin.denied,
        declared_effect: definition.and_then(Effect::declared).map(word),
        effect: pin.effect.map(word),
        description: description.and_then(|text| text.lines().next().map(str::to_owned)),
    }
}
