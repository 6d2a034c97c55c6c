//! Prompts: the requested turns with the additions of hooks.

use mgp_mcpl_engine::inference::budget::max_usage;
use mgp_mcpl_engine::inference::provider::ProviderSpec;
use mgp_protocol::mcpl::inference::{PromptPart, PromptRole, PromptTurn, TokenUsage};

use super::InferenceJob;
use super::inference_hooks::{KernelInference, PromptAdditions};

pub(super) fn kernel_inference(
    job: &InferenceJob,
    depth: u8,
    spec: &ProviderSpec,
) -> KernelInference {
    let asked = job
        .turns
        .iter()
        .rev()
        .find(|turn| turn.role == PromptRole::User);
    KernelInference {
        id: job.id.clone(),
        conversation: job.conversation.clone().unwrap_or_else(|| job.id.clone()),
        server: job.server.clone(),
        depth,
        turn_index: job
            .turns
            .iter()
            .filter(|turn| turn.role == PromptRole::User)
            .count()
            .saturating_sub(1),
        user: asked.map(join_texts),
        model: spec.info.clone(),
    }
}

pub(super) fn join_texts(turn: &PromptTurn) -> String {
    let texts = turn.parts.iter().filter_map(|part| match part {
        PromptPart::Text(text) => Some(text.as_str()),
        PromptPart::Image { .. } | PromptPart::Other(_) => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The turns with the additions of hooks, and the maximum tokens of the additions.
pub(super) fn merge_additions(
    added: PromptAdditions,
    turns: &[PromptTurn],
) -> (Vec<PromptTurn>, u64) {
    let turn = |role, text: String| PromptTurn {
        role,
        parts: vec![PromptPart::Text(text)],
    };
    let system: Vec<_> = added
        .system
        .into_iter()
        .map(|text| turn(PromptRole::System, text))
        .collect();
    let before: Vec<_> = added
        .before_user
        .into_iter()
        .map(|text| turn(PromptRole::User, text))
        .collect();
    let after: Vec<_> = added
        .after_user
        .into_iter()
        .map(|text| turn(PromptRole::User, text))
        .collect();
    let all = [&system[..], &before[..], &after[..]].concat();
    let additional = max_usage(&all, 0);
    // After the requester's own system turns, and around the user's last turn.
    let system_count = turns
        .iter()
        .take_while(|turn| turn.role == PromptRole::System)
        .count();
    let last = turns
        .iter()
        .rposition(|turn| turn.role == PromptRole::User)
        .unwrap_or(turns.len());
    let split = last.max(system_count);
    let (head, tail) = (&turns[system_count..split], &turns[split..]);
    let (user, rest) = tail.split_at(tail.len().min(1));
    let merged = [
        &turns[..system_count],
        &system[..],
        head,
        &before[..],
        user,
        &after[..],
        rest,
    ]
    .concat();
    (merged, additional)
}

/// An estimate for a provider that reports no usage: four bytes for each token.
pub(super) fn estimate_usage(turns: &[PromptTurn], max_tokens: u64) -> TokenUsage {
    TokenUsage {
        input_tokens: max_usage(turns, 0) / 4,
        output_tokens: max_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(role: PromptRole, text: &str) -> PromptTurn {
        PromptTurn {
            role,
            parts: vec![PromptPart::Text(text.to_owned())],
        }
    }

    /// Additions of hooks follow the requester's system text, and surround the user's last turn.
    #[test]
    fn additions_of_hooks_are_inserted_at_their_positions() {
        use PromptRole::{Assistant, System, User};
        let turns = [
            turn(System, "s"),
            turn(User, "1"),
            turn(Assistant, "a"),
            turn(User, "2"),
            turn(Assistant, "so"),
        ];
        let added = || PromptAdditions {
            system: vec!["S".into()],
            before_user: vec!["B".into()],
            after_user: vec!["A".into()],
        };
        let job = |turns: &[PromptTurn]| {
            let (merged, additional) = merge_additions(added(), turns);
            assert_eq!(additional, max_usage(&merged, 0) - max_usage(turns, 0));
            merged.iter().map(join_texts).collect::<Vec<_>>().concat()
        };
        assert_eq!(job(&turns), "sS1aB2Aso");
        assert_eq!(job(&[turn(User, "u")]), "SBuA");
        assert_eq!(job(&[turn(System, "s")]), "sSBA");
        assert_eq!(
            merge_additions(PromptAdditions::default(), &turns),
            (turns.to_vec(), 0)
        );
    }
}
