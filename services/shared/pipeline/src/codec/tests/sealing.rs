//! What is sealed comes back, until its key is destroyed.

use anamnesis_domain::receipt::InboxRejected;

use super::*;

#[tokio::test]
async fn a_turn_comes_back_and_its_words_are_nowhere_in_the_payload() {
    let codec = codec();
    let (turn, record, meta) = told(&codec, "我对芒果过敏").await;
    assert_eq!(
        (meta.code.as_str(), meta.consent_version, meta.key_epoch),
        ("turn", 12, 1)
    );
    assert_eq!(
        (meta.position, meta.origin),
        (record.position, record.position)
    );
    assert_eq!(meta.owner, record.key);
    for words in [turn.text.expose(), "hospital-7", "p-1"] {
        let found = record
            .payload
            .windows(words.len())
            .any(|bytes| bytes == words.as_bytes());
        assert!(!found, "{words}");
    }
}

#[tokio::test]
async fn candidates_are_sealed_under_their_turns_key() {
    let codec = codec();
    let (turn, _, meta) = told(&codec, "allergic to mango").await;
    let set = candidates(&turn);
    let sealed = codec
        .seal_candidates(&[(meta.clone(), Some(set.clone()))])
        .await
        .unwrap();
    let record = logged(Topic::Candidates, 6, &sealed[0]);
    match open_one(&codec, &record).await.unwrap() {
        Opened::Candidates {
            meta: opened,
            set: back,
        } => {
            assert_eq!((opened.key_id, opened.origin), (meta.key_id, meta.position));
            assert_eq!((opened.code.as_str(), opened.failed), ("candidates", None));
            assert_eq!(*back, set);
        }
        other => panic!("{other:?}"),
    }
    erase(&codec, Target::Message(turn.event)).await;
    let opened = open_one(&codec, &record).await.unwrap();
    assert!(
        matches!(opened, Opened::Erased { meta } if meta.origin == place(Topic::Conversation, 4))
    );
}

#[tokio::test]
async fn a_turn_erased_before_extraction_still_has_one_answer() {
    let codec = codec();
    let (turn, record, meta) = told(&codec, "allergic to mango").await;
    erase(&codec, Target::Message(turn.event)).await;
    let opened = open_one(&codec, &record).await.unwrap();
    assert_eq!(opened, Opened::Erased { meta: meta.clone() });
    for set in [None, Some(candidates(&turn))] {
        let sealed = codec.seal_candidates(&[(meta.clone(), set)]).await.unwrap();
        let opened = open_one(&codec, &logged(Topic::Candidates, 6, &sealed[0]))
            .await
            .unwrap();
        match opened {
            Opened::Erased { meta } => assert_eq!(meta.failed.as_deref(), Some("erased")),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_failed_extraction_says_so_in_clear() {
    let codec = codec();
    let (turn, _, meta) = told(&codec, "allergic to mango").await;
    let mut set = candidates(&turn);
    set.candidates.clear();
    set.failed = Some("model_unavailable".into());
    let sealed = codec.seal_candidates(&[(meta, Some(set))]).await.unwrap();
    match read_clear(&sealed[0].payload).unwrap() {
        Clear::Input {
            kind,
            failed,
            origin,
            ..
        } => {
            assert_eq!(
                (kind.as_str(), failed.as_deref()),
                ("candidates", Some("model_unavailable"))
            );
            assert_eq!(origin, Some(place(Topic::Conversation, 4)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_command_comes_back_with_its_code_in_clear() {
    let codec = codec();
    let erasure = ErasureId::from_bytes([1; 16]);
    let erase = Command::Erase {
        erasure,
        target: Target::Owner,
        reason: "asked".into(),
    };
    let command = command(&codec, erase);
    let sealed = codec
        .seal_commands(std::slice::from_ref(&command))
        .await
        .unwrap();
    match open_one(&codec, &logged(Topic::Commands, 2, &sealed[0]))
        .await
        .unwrap()
    {
        Opened::Command {
            meta,
            command: back,
        } => {
            assert_eq!(meta.code, "erase");
            assert_eq!(*back, command);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_decision_comes_back_and_its_hash_is_that_of_the_payload() {
    let codec = codec();
    let (decision, record, hash) = decided(&codec, "我对芒果过敏").await;
    let opened = opened_decided(&codec, &record).await;
    assert_eq!((opened.hash, hash), (hash, Hash::of(&record.payload)));
    let detail = opened.decided.detail.unwrap();
    assert_eq!(detail.owner, "hospital-7/patient/p-1");
    assert_eq!(
        (detail.content, detail.notes),
        (decision.content, decision.notes)
    );
    let transitions: Vec<Transition> = opened
        .decided
        .parts
        .iter()
        .map(|part| match &part.body {
            PartBody::Open(transition) => (**transition).clone(),
            PartBody::Unreadable => panic!("{}", part.code),
        })
        .collect();
    assert_eq!(transitions, decision.transitions);
    let in_clear: Vec<&str> = opened
        .decided
        .parts
        .iter()
        .filter(|part| part.key.is_none())
        .map(|part| part.code.as_str())
        .collect();
    assert_eq!(in_clear, ["memories_erased"]);
}

#[tokio::test]
async fn the_skeleton_needs_no_key_and_outlives_them_all() {
    let codec = codec();
    let (decision, record, _) = decided(&codec, "我对芒果过敏").await;
    let before = read_clear(&record.payload).unwrap();
    erase(&codec, Target::Owner).await;
    let opened = opened_decided(&codec, &record).await.decided;
    assert_eq!(opened.detail, None);
    for part in &opened.parts {
        let is_readable = matches!(part.body, PartBody::Open(_));
        assert_eq!(is_readable, part.code == "memories_erased", "{}", part.code);
    }
    assert_eq!(read_clear(&record.payload).unwrap(), before);
    let Clear::Decided(clear) = before else {
        panic!("{before:?}")
    };
    let said: Vec<_> = opened
        .parts
        .iter()
        .map(|part| (part.code.clone(), part.memory_id, part.key))
        .collect();
    assert_eq!(clear.parts, said);
    assert_eq!(clear.erased, [decision.transitions[1].clone()]);
    assert_eq!((clear.owner_seq, clear.outcome.as_str()), (1, "stored"));
}

#[tokio::test]
async fn erasing_one_memory_leaves_the_other_parts_readable() {
    let codec = codec();
    let (decision, record, _) = decided(&codec, "我对芒果过敏").await;
    let first = decision.transitions[0].memory_id().unwrap();
    erase(&codec, Target::Memories(vec![first])).await;
    let opened = opened_decided(&codec, &record).await.decided;
    assert_eq!(opened.parts[0].body, PartBody::Unreadable);
    assert!(matches!(opened.parts[2].body, PartBody::Open(_)));
}

#[tokio::test]
async fn a_repeat_seals_under_the_same_keys_unless_it_says_something_else() {
    let codec = codec();
    let (turn, _, meta) = told(&codec, "我对芒果过敏").await;
    let (draft, decision) = (draft(&meta), decision(&codec, &turn));
    let ids = |keys: &PreparedKeys| {
        keys.transitions
            .iter()
            .map(|(id, _)| *id)
            .collect::<Vec<_>>()
    };
    let first = codec.prepare_decided(&[(&draft, &decision)]).await.unwrap();
    let again = codec.prepare_decided(&[(&draft, &decision)]).await.unwrap();
    assert_eq!(ids(&first[0]), ids(&again[0]));
    // The same place with another memory: a key that the keyring files under the first memory would
    // survive the erasure of this one.
    let mut other = decision.clone();
    other.transitions.remove(0);
    other.transitions.swap(0, 1);
    let moved = codec.prepare_decided(&[(&draft, &other)]).await.unwrap();
    assert!(!ids(&first[0]).contains(&ids(&moved[0])[0]));
    let error = codec.seal_decided(&draft, &other, &first[0]).unwrap_err();
    assert_eq!(error.reason(), "unprepared");
}

#[tokio::test]
async fn a_batch_of_decisions_keeps_each_one_with_its_keys() {
    let codec = codec();
    let mut batch = Vec::new();
    for text in ["one", "two", "three"] {
        let (turn, _, meta) = told(&codec, text).await;
        let mut draft = draft(&meta);
        let mut decision = decision(&codec, &turn);
        if text == "two" {
            draft.source_key = None;
            decision.transitions.clear();
            decision.outcome = Outcome::Rejected("erased".into());
        }
        batch.push((draft, decision));
    }
    let pairs: Vec<_> = batch
        .iter()
        .map(|(draft, decision)| (draft, decision))
        .collect();
    let keys = codec.prepare_decided(&pairs).await.unwrap();
    for ((draft, decision), keys) in batch.iter().zip(&keys) {
        let (record, _) = codec.seal_decided(draft, decision, keys).unwrap();
        let opened = opened_decided(&codec, &logged(Topic::Memories, 8, &record))
            .await
            .decided;
        assert_eq!(opened.parts.len(), decision.transitions.len());
        assert_eq!(opened.outcome, decision.outcome);
        assert_eq!(opened.detail.is_some(), draft.source_key.is_some());
    }
}

#[tokio::test]
async fn sealing_after_the_erasure_is_refused() {
    let codec = codec();
    let (turn, _, meta) = told(&codec, "我对芒果过敏").await;
    let (draft, decision) = (draft(&meta), decision(&codec, &turn));
    erase(&codec, Target::Owner).await;
    let error = codec
        .prepare_decided(&[(&draft, &decision)])
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "key_destroyed");
}

#[tokio::test]
async fn a_vector_is_sealed_like_its_memory_and_dies_with_it() {
    let codec = codec();
    let (decision, record, _) = decided(&codec, "我对芒果过敏").await;
    let part = opened_decided(&codec, &record)
        .await
        .decided
        .parts
        .remove(0);
    let item = EmbeddingDraft {
        owner: record.key,
        epoch: 1,
        memory_id: part.memory_id.unwrap(),
        key_id: part.key.unwrap(),
        model: ModelIdentity {
            id: "hash".into(),
            dimension: 3,
        },
        vector: vec![0.25, -1.0, 0.5],
    };
    let sealed = codec
        .seal_embeddings(std::slice::from_ref(&item))
        .await
        .unwrap();
    let record = logged(Topic::Embeddings, 1, &sealed[0]);
    let expected = |vector| Opened::Embedding {
        owner: item.owner,
        memory_id: item.memory_id,
        model: item.model.clone(),
        vector,
    };
    assert_eq!(
        open_one(&codec, &record).await.unwrap(),
        expected(Some(item.vector.clone()))
    );
    let first = decision.transitions[0].memory_id().unwrap();
    erase(&codec, Target::Memories(vec![first])).await;
    assert_eq!(open_one(&codec, &record).await.unwrap(), expected(None));
    assert_eq!(codec.seal_embeddings(&[item]).await.unwrap(), []);
}

#[tokio::test]
async fn recall_receipts_of_one_owner_share_a_key_and_die_with_the_owner() {
    let codec = codec();
    let key = codec.keys().id_key().owner(&owner());
    let receipt = |n: u8| RecallReceipt {
        recall_id: RecallId::from_bytes([n; 16]),
        owner: owner(),
        at: at(0),
        caller: "assistant".into(),
        purpose: None,
        request: Text::new("{}"),
        answer: Text::new("{\"memories\":[]}"),
        returned: vec![],
    };
    let receipts = [(key, receipt(1)), (key, receipt(2))];
    let sealed = codec.seal_receipts(&receipts).await.unwrap();
    let records: Vec<Record> = (1..)
        .zip(&sealed)
        .map(|(offset, new)| logged(Topic::Accesses, offset, new))
        .collect();
    for (opened, (_, expected)) in codec
        .open(&records)
        .await
        .unwrap()
        .into_iter()
        .zip(&receipts)
    {
        match opened.unwrap() {
            Opened::Access {
                receipt: Some(receipt),
                ..
            } => assert_eq!(*receipt, *expected),
            other => panic!("{other:?}"),
        }
    }
    erase(&codec, Target::Owner).await;
    for opened in codec.open(&records).await.unwrap() {
        assert!(matches!(opened, Ok(Opened::Access { receipt: None, .. })));
    }
}

#[tokio::test]
async fn records_without_a_body_come_back() {
    let codec = codec();
    let key = codec.keys().id_key().owner(&owner());
    let identity = Identity {
        log_id: LogId::from_bytes([3; 16]),
        created_at: at(0),
        partitions: 4,
    };
    let payload = identity_payload(&identity, Topic::Commands);
    let first = NewRecord {
        key: OwnerKey::from_bytes([0; 16]),
        payload,
    };
    let opened = open_one(&codec, &logged(Topic::Commands, 0, &first))
        .await
        .unwrap();
    assert_eq!(opened, Opened::Identity(identity));

    let parked = Parked {
        stage: "extractor".into(),
        owner: key,
        first: place(Topic::Conversation, 3),
        reason: "tampered".into(),
        at: at(1),
        writer_epoch: None,
    };
    let record = codec.parked(&parked).unwrap();
    let opened = open_one(&codec, &logged(Topic::Candidates, 1, &record))
        .await
        .unwrap();
    assert_eq!(opened, Opened::Parked(parked.clone()));
    assert_eq!(read_clear(&record.payload).unwrap(), Clear::Parked(parked));

    let unparked = Unparked {
        stage: "extractor".into(),
        owner: key,
        at: at(2),
        writer_epoch: Some(4),
    };
    let record = codec.unparked(&unparked).unwrap();
    let opened = open_one(&codec, &logged(Topic::Candidates, 1, &record))
        .await
        .unwrap();
    assert_eq!(opened, Opened::Unparked(unparked));

    let receipt = ErasureReceipt {
        erasure: ErasureId::from_bytes([8; 16]),
        owner: key,
        place: "text".into(),
        stage: "effective".into(),
        count: 3,
        at: at(3),
    };
    let record = codec.erasure_receipt(&receipt).unwrap();
    let opened = open_one(&codec, &logged(Topic::Receipts, 1, &record))
        .await
        .unwrap();
    assert_eq!(opened, Opened::Receipt(receipt));

    let read = InboxRead {
        partition: 7,
        from: 1,
        next: 12,
        read: 11,
        accepted: 10,
        rejected_count: 1,
        rejected: vec![InboxRejected {
            offset: 4,
            code: "invalid_json".into(),
        }],
        at: at(4),
    };
    let record = codec.inbox_read(&read).unwrap();
    let logged_read = logged(Topic::Receipts, 1, &record);
    let opened = open_one(&codec, &logged_read).await.unwrap();
    assert_eq!(opened, Opened::InboxRead(read));
    // Under an owner's key it would move with that owner.
    let mut moved = logged_read;
    moved.key = key;
    let refused = open_one(&codec, &moved).await.unwrap_err();
    assert_eq!(refused.reason(), "wrong_owner");

    let record = codec.writer_started(at(4)).unwrap();
    let opened = open_one(&codec, &logged(Topic::Memories, 5, &record))
        .await
        .unwrap();
    let position = place(Topic::Memories, 5);
    assert!(matches!(opened, Opened::WriterStarted { position: p, .. } if p == position));
}
