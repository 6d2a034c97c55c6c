//! Guards the chunks of one call in the order in which they are delivered.

use std::sync::Arc;

use mgp_json::{Splice, member, quote};
use mgp_protocol::mgp::stream::chunk_text;
use mgp_screening::masks::Masks;
use mgp_screening::results::{Findings, Flagging, InstructionRule, Place, ResultGuard, TextStream};

use super::chunk::{PartialResult, StreamChunk};
use crate::in_flight_call::InFlightCall;

/// How the chunks of a server are guarded.
#[derive(Clone, Debug)]
pub struct ChunkGuard {
    /// The settings of the server.
    pub guard: Arc<ResultGuard>,
    /// The secrets known when the call began.
    pub masks: Arc<Masks>,
}

/// The state for one stream.
#[derive(Debug)]
pub(super) struct GuardedStream {
    settings: ChunkGuard,
    text: TextStream,
    /// The lowest index that was not delivered.
    next_index: u64,
}

impl GuardedStream {
    pub(super) fn new(settings: ChunkGuard) -> Self {
        Self {
            settings,
            text: TextStream::default(),
            next_index: 0,
        }
    }

    /// The chunk as its reader gets it. What could be the beginning of a secret comes with the next one.
    pub(super) fn guard_chunk(
        &mut self,
        call: &InFlightCall,
        index: u64,
        chunk: &Arc<StreamChunk>,
    ) -> Arc<StreamChunk> {
        // A late chunk may hold the first half of a secret whose second half was sent. A result that may be
        // held is not told in advance.
        let is_late = index < self.next_index;
        self.next_index = self.next_index.max(index + 1);
        let rules = self.settings.guard.rules();
        let is_withheld =
            rules.instructions == InstructionRule::Hold || !rules.interceptors.is_empty();
        if is_late || is_withheld {
            return Arc::new(chunk.with_content(None));
        }
        let content = chunk.content().map(|content| {
            let mut findings = Findings::default();
            let ChunkGuard { guard, masks } = &self.settings;
            let guarded = match (chunk_text(content), member(content, "text")) {
                (Some(text), Some(raw)) => {
                    let mut told = self.text.push(guard, masks, &text, &mut findings);
                    if chunk.is_last() {
                        told.push_str(&self.text.finish(guard, masks, &mut findings));
                    }
                    // The other members, without the text.
                    let mut others = Splice::new(content);
                    others.replace(raw, r#""""#.to_owned());
                    let others = self.guard_part(&others.finish(), &mut findings);
                    let Some(raw) = member(&others, "text") else {
                        return others;
                    };
                    let mut splice = Splice::new(&others);
                    splice.replace(raw, quote(&told));
                    splice.finish().into_owned()
                }
                _ => self.guard_part(content, &mut findings),
            };
            report(call, &findings);
            guarded
        });
        Arc::new(chunk.with_content(Some(content.unwrap_or_default())))
    }

    /// A content block, guarded as a part of a message, so that the data of an image is known as such.
    fn guard_part(&self, content: &str, findings: &mut Findings) -> String {
        let ChunkGuard { guard, masks } = &self.settings;
        let whole = format!("[{content}]");
        let done = guard.guard_json(&whole, Place::Message, masks, Flagging::Off);
        findings.merge(&done.findings);
        let whole = done.text.unwrap_or(whole);
        whole[1..whole.len() - 1].to_owned()
    }

    /// What was held back when the stream ended without a last chunk, and the index after the last one.
    pub(super) fn finish(&mut self, call: &InFlightCall) -> Option<(u64, String)> {
        let (ChunkGuard { guard, masks }, mut findings) = (&self.settings, Findings::default());
        let rest = self.text.finish(guard, masks, &mut findings);
        report(call, &findings);
        (!rest.is_empty()).then_some((self.next_index, rest))
    }

    /// A partial result, guarded as a whole.
    pub(super) fn guard_partial(&self, partial: PartialResult) -> PartialResult {
        let ChunkGuard { guard, masks } = &self.settings;
        // Interceptors see whole results only.
        if !guard.rules().interceptors.is_empty() {
            return PartialResult::unknown();
        }
        let flagging = match guard.rules().instructions {
            InstructionRule::Off | InstructionRule::Warn => Flagging::Off,
            InstructionRule::Hold => Flagging::Withhold,
        };
        let place = Place::Result { has_state: false };
        let done = guard.guard_json(&partial.0, place, masks, flagging);
        done.text.map_or(partial, |text| PartialResult(text.into()))
    }
}

fn report(call: &InFlightCall, findings: &Findings) {
    if !findings.is_empty() {
        call.update_guard_report(|report| report.findings.merge(findings));
    }
}
