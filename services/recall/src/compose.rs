//! How does a recall become a context: whose memories go in, and what does the receipt say of it?

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_pipeline::stores::SubjectFilter;
use tokio::time::Instant;

use crate::admission::{Depth, Gate};
use crate::answer::{Answer, Recalled};
use crate::context::{self, Context, Material, Tag, Withheld};
use crate::kept::{KeptAnswer, LATE};
use crate::metrics::{self, CONTEXT_TOKENS_TOTAL, CONTEXT_USABLE_TOKENS_TOTAL, DEGRADED_TOTAL};
use crate::receipts::Told;
use crate::request::Ask;
use crate::select::{INJECTED_MAX, injected};
use crate::service::{Recall, RecallError, entered};

/// Another owner whose policies or lessons a context may take from; the caller's token covers it.
#[derive(Clone, Debug)]
pub struct Companion {
    pub owner: Owner,
    pub scope: OwnerScope,
    pub kind: Kind,
}

/// What a context is to be made of.
#[derive(Clone, Debug)]
pub struct ContextAsk {
    pub ask: Ask,
    pub usable_tokens: u32,
    pub sections: Option<Vec<Tag>>,
    pub companions: Vec<Companion>,
}

impl Recall {
    /// Recalls, and composes what an assistant is given within its budget. The receipt names what was
    /// injected.
    ///
    /// # Errors
    /// As [`Recall::recall`].
    pub async fn context(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        wanted: ContextAsk,
    ) -> Result<Context, RecallError> {
        self.composed(scope, owner, caller, wanted, None).await
    }

    /// As [`Recall::context`], in turn with all others who ask ([`Recall::recall_in_turn`]).
    ///
    /// # Errors
    /// As [`Recall::recall_in_turn`].
    pub async fn context_in_turn(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        wanted: ContextAsk,
    ) -> Result<Context, RecallError> {
        let gate = Some(&self.gate);
        self.composed(scope, owner, caller, wanted, gate).await
    }

    async fn composed(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        wanted: ContextAsk,
        gate: Option<&Gate>,
    ) -> Result<Context, RecallError> {
        let is_late = !self.waited(scope, &wanted.ask).await?;
        let started = Instant::now();
        let composed = match entered(gate).await {
            Ok(turn) => {
                let depth = turn.as_ref().map_or(Depth::Whole, |turn| turn.depth);
                self.context_now(scope, owner, caller, (wanted, depth), is_late)
                    .await
            }
            Err(error) => Err(error),
        };
        let answer = composed.as_ref().map(|(_, answer)| answer);
        metrics::recalled("context", answer, started.elapsed());
        composed.map(|(context, _)| context)
    }

    /// The context, and the answer that it was made of.
    async fn context_now(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        (wanted, depth): (ContextAsk, Depth),
        is_late: bool,
    ) -> Result<(Context, Answer), RecallError> {
        let ContextAsk {
            ask,
            usable_tokens,
            sections,
            companions,
        } = wanted;
        let seen = self.see(scope, ask.known_at).await?;
        let answer = self.answer(scope, owner, (&ask, depth), &seen).await?;
        let mut degraded = answer.degraded.clone();
        if is_late {
            ::metrics::counter!(DEGRADED_TOTAL, "part" => LATE).increment(1);
            degraded.push(LATE.to_owned());
        }
        let (mut memories, beyond) = injected(answer.memories.clone(), |one| one.record.protected);
        for companion in companions {
            memories.extend(self.companion_memories(&companion, (&ask, depth)).await?);
        }
        let context = context::compose(Material {
            recall_id: answer.recall_id,
            task: seen.task(ask.task_id.as_deref()),
            memories,
            beyond_limit: beyond.iter().map(|one| one.record.id).collect(),
            usable_tokens,
            sections,
            degraded,
            erased: answer.erased.clone(),
        });
        let mut request = self.receipt_request((&ask, depth), &seen);
        let lines = context.sections.iter().flat_map(|section| &section.lines);
        let own = |id: &MemoryId| answer.memories.iter().any(|one| one.record.id == *id);
        request.injected = Some(
            lines
                .filter_map(|line| line.memory_id)
                .filter(own)
                .collect(),
        );
        let own_withheld: Vec<Withheld> = context
            .withheld
            .iter()
            .filter(|withheld| own(&withheld.memory_id))
            .cloned()
            .collect();
        let told = Told {
            recall_id: answer.recall_id,
            request,
            kept: KeptAnswer::of(&answer, &own_withheld),
        };
        self.leave_receipt(scope, owner, caller, &seen, told);
        ::metrics::counter!(CONTEXT_TOKENS_TOTAL).increment(u64::from(context.tokens));
        ::metrics::counter!(CONTEXT_USABLE_TOKENS_TOTAL).increment(u64::from(usable_tokens));
        Ok((context, answer))
    }

    /// Policies or lessons that match the question. They never see the patient: no receipt is left in
    /// their owner's chain.
    async fn companion_memories(
        &self,
        companion: &Companion,
        (ask, depth): (&Ask, Depth),
    ) -> Result<Vec<Recalled>, RecallError> {
        let ask = Ask {
            kinds: Some(vec![companion.kind]),
            subject: Some(SubjectFilter::Any),
            top_k: INJECTED_MAX,
            task_id: None,
            include_history: false,
            ..ask.clone()
        };
        let seen = self.see(companion.scope, ask.known_at).await?;
        Ok(self
            .answer(companion.scope, &companion.owner, (&ask, depth), &seen)
            .await?
            .memories)
    }
}
