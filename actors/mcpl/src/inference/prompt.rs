//! Prompts: what was asked, with what hooks add.

use mgp_mcpl_engine::inference::budget::max_usage;
use mgp_mcpl_engine::inference::provider::ProviderSpec;
use mgp_protocol::mcpl::inference::{PromptPart, PromptRole, PromptTurn, TokenUsage};

use super::InferenceJob;
use super::inference_hooks::{KernelInference, PromptAdditions};

pub(super) fn kernel_inference(
    order: &InferenceJob,
    depth: u8,
    spec: &ProviderSpec,
) -> KernelInference {
    let asked = order
        .turns
        .iter()
        .rev()
        .find(|turn| turn.role == PromptRole::User);
    KernelInference {
        id: order.id.clone(),
        conversation: order
            .conversation
            .clone()
            .unwrap_or_else(|| order.id.clone()),
        server: order.server.clone(),
        depth,
        turn_index: order
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

/// The turns with what hooks added, and the tokens that this may come to.
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
    let more = max_usage(&all, 0);
    // Behind what the asker itself has the model hold to, and around the last thing the user said.
    let own = turns
        .iter()
        .take_while(|turn| turn.role == PromptRole::System)
        .count();
    let last = turns
        .iter()
        .rposition(|turn| turn.role == PromptRole::User)
        .unwrap_or(turns.len());
    let split = last.max(own);
    let (head, tail) = (&turns[own..split], &turns[split..]);
    let (user, rest) = tail.split_at(tail.len().min(1));
    let whole = [
        &turns[..own],
        &system[..],
        head,
        &before[..],
        user,
        &after[..],
        rest,
    ]
    .concat();
    (whole, more)
}

/// For who says no numbers: a token of four bytes.
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

    /// What hooks add stands behind the asker's own system text, and around what the user said last.
    #[test]
    fn what_hooks_add_has_its_place() {
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
        let order = |turns: &[PromptTurn]| {
            let (whole, more) = merge_additions(added(), turns);
            assert_eq!(more, max_usage(&whole, 0) - max_usage(turns, 0));
            whole.iter().map(join_texts).collect::<Vec<_>>().concat()
        };
        assert_eq!(order(&turns), "sS1aB2Aso");
        assert_eq!(order(&[turn(User, "u")]), "SBuA");
        assert_eq!(order(&[turn(System, "s")]), "sSBA");
        assert_eq!(
            merge_additions(PromptAdditions::default(), &turns),
            (turns.to_vec(), 0)
        );
    }
}
