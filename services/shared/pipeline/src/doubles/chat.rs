//! What does a stage do with whatever a language model may answer?

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anamnesis_domain::text::Text;
use async_trait::async_trait;

use crate::chat::{ChatAnswer, ChatError, ChatModel, ChatRequest};

type Script = dyn Fn(&ChatRequest, usize) -> Said + Send + Sync;

/// What the script says to one call.
#[derive(Clone, Debug)]
pub struct Said {
    pub after: Duration,
    pub answer: Result<String, ChatError>,
}

impl Said {
    pub fn now(answer: impl Into<String>) -> Self {
        Self {
            after: Duration::ZERO,
            answer: Ok(answer.into()),
        }
    }

    pub fn error(error: ChatError) -> Self {
        Self {
            after: Duration::ZERO,
            answer: Err(error),
        }
    }
}

/// A model that answers what a test says, call by call.
pub struct ScriptedChat {
    script: Box<Script>,
    calls: AtomicUsize,
    under_way: AtomicUsize,
    most_at_once: AtomicUsize,
    asked: Mutex<Vec<ChatRequest>>,
}

impl ScriptedChat {
    /// `script` is handed the request and how many calls there were before.
    pub fn new(script: impl Fn(&ChatRequest, usize) -> Said + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(script),
            calls: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            asked: Mutex::new(Vec::new()),
        }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// The most calls that were under way at one moment.
    pub fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }

    /// Every request, in the order of the calls.
    pub fn asked(&self) -> Vec<ChatRequest> {
        self.asked
            .lock()
            .expect("no test panics while it asks")
            .clone()
    }
}

/// A call is over also when nobody waits for it any more.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ChatModel for ScriptedChat {
    fn model(&self) -> &str {
        "scripted"
    }

    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, ChatError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.asked
            .lock()
            .expect("no test panics while it asks")
            .push(request.clone());
        let at_once = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        let _ends = Ends(&self.under_way);
        self.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        let said = (self.script)(request, number);
        if !said.after.is_zero() {
            tokio::time::sleep(said.after).await;
        }
        said.answer.map(|content| ChatAnswer {
            content: Text::new(content),
            model: "scripted".to_owned(),
            prompt_tokens: 100,
            completion_tokens: 20,
        })
    }
}
