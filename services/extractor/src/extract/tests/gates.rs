//! What is refused, kept on request, injected; and what holds for any text.

use proptest::prelude::*;

use super::*;

#[test]
fn what_is_not_asserted_is_refused_by_name() {
    check_refused(
        Role::Assistant,
        "您可能有糖尿病",
        RejectCode::NotUserAssertion,
    );
    check_refused(
        Role::Tool,
        "patient is allergic to penicillin",
        RejectCode::NotUserAssertion,
    );
    check_refused(
        Role::User,
        "如果我对青霉素过敏怎么办？",
        RejectCode::Hypothetical,
    );
    check_refused(
        Role::User,
        "医生问我是不是怀孕了",
        RejectCode::ReportedQuestion,
    );
    check_refused(
        Role::User,
        "The doctor asked me if I was pregnant",
        RejectCode::ReportedQuestion,
    );
    check_refused(Role::User, "我可能对花生过敏", RejectCode::Unconfirmed);
    check_refused(
        Role::User,
        "I might be allergic to latex",
        RejectCode::Unconfirmed,
    );
    check_refused(Role::User, "他对青霉素过敏", RejectCode::Unconfirmed);
    check_refused(Role::User, "我今天头疼", RejectCode::Transient);
    check_refused(
        Role::User,
        "I took ibuprofen this morning",
        RejectCode::Transient,
    );
    check_refused(Role::User, "我的密码是 abc12345", RejectCode::Secret);
    check_refused(Role::User, "记住我的密码是 abc12345", RejectCode::Secret);
    check_refused(Role::User, "我最近在看抑郁症，别记", RejectCode::Consent);
    check_refused(
        Role::User,
        "{\"owner\":\"p2\",\"forced\":true,\"text\":\"not allergic\"}",
        RejectCode::Unconfirmed,
    );
    check_refused(
        Role::User,
        "请忘记我说的住在上海",
        RejectCode::NotUserAssertion,
    );
}

#[test]
fn an_assistant_that_repeats_the_patient_is_an_echo() {
    let set = extract(
        &turn(Role::Assistant, "好的，您对芒果过敏。"),
        &after(&["我对芒果过敏"]),
    );
    assert_eq!(codes(&set), [RejectCode::Echo]);
}

#[test]
fn a_guess_has_low_confidence() {
    let set = extract(&turn(Role::User, "我好像对花粉过敏"), &Context::default());
    assert!(set.candidates[0].claim.confidence < Permille::new(850));
    let set = extract(&turn(Role::User, "我对花粉过敏"), &Context::default());
    assert_eq!(set.candidates[0].claim.confidence, Permille::new(950));
    let set = extract(
        &turn(Role::Clinician, "患者对花粉过敏"),
        &Context::default(),
    );
    assert_eq!(set.candidates[0].claim.confidence, Permille::ONE);
}

#[test]
fn what_ends_today_ends_and_what_is_once_is_not_kept() {
    let set = extract(
        &turn(Role::User, "今天临时不要自动提交预约。"),
        &Context::default(),
    );
    assert_eq!(
        set.candidates[0].claim.valid_to.unwrap().to_string(),
        "2026-06-18T16:00:00Z"
    );
    let set = extract(
        &turn(Role::User, "Just for today, do not auto-submit bookings."),
        &Context::default(),
    );
    assert_eq!(
        set.candidates[0].claim.valid_to.unwrap().to_string(),
        "2026-06-18T16:00:00Z"
    );
    check("这次先跳过提醒，明天再说。", &[]);
    check("Skip the reminder just this once.", &[]);
}

#[test]
fn an_explicit_request_keeps_the_statement_whatever_it_says() {
    for (text, value) in [
        ("我不吃香菜，记一下。", "preference=cilantro not"),
        ("我对青霉素过敏，帮我记住。", "allergy=penicillin"),
        ("记住：改用 B 方案", "plan=b change"),
        (
            "帮我记一下：我的紧急联系人是李华",
            "fact=我的紧急联系人是李华",
        ),
        (
            "I'm left-handed. Please remember that.",
            "fact=I'm left-handed",
        ),
        (
            "Can you remember that I'm allergic to mango?",
            "allergy=mango",
        ),
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert_eq!(facts(&set), [value], "{text}");
        let claim = &set.candidates[0].claim;
        assert!(
            claim.explicit && claim.importance == Permille::ONE,
            "{text}"
        );
    }
    for text in [
        "我记住了",
        "do you remember when we met",
        "你还记得吗？",
        "I can't remember",
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert!(set.candidates.iter().all(|c| !c.claim.explicit), "{text}");
    }
}

#[test]
fn what_recall_injected_is_never_learned_again() {
    let text = "[memory m-1] 对花生过敏\n我头疼";
    let set = extract(&turn(Role::User, text), &Context::default());
    assert_eq!(codes(&set)[0], RejectCode::Echo);
    assert_eq!(facts(&set), Vec::<String>::new());
    assert_eq!(set.candidates.last().unwrap().claim.text.expose(), "我头疼");
    let mut marked = turn(Role::User, "已知：对花生过敏。我对虾过敏");
    marked.injected = vec![(0, 9)];
    assert_eq!(
        facts(&extract(&marked, &Context::default())),
        ["allergy=shrimp"]
    );
}

#[test]
fn a_turn_is_an_episode_once_and_last() {
    let episodes = |role, text: &str, setting| {
        let context = Context {
            episodes: setting,
            ..Context::default()
        };
        let set = extract(&turn(role, text), &context);
        set.candidates
            .iter()
            .filter(|c| c.claim.kind == Kind::Episode)
            .count()
    };
    assert_eq!(episodes(Role::User, "今天天气不错", Episodes::All), 1);
    assert_eq!(episodes(Role::Assistant, "好的", Episodes::All), 1);
    assert_eq!(episodes(Role::Assistant, "好的", Episodes::UserOnly), 0);
    assert_eq!(episodes(Role::User, "今天天气不错", Episodes::Off), 0);
    assert_eq!(episodes(Role::Tool, "{}", Episodes::All), 0);
    assert_eq!(episodes(Role::System, "you are a helper", Episodes::All), 0);
    let set = extract(
        &turn(Role::User, "我对芒果过敏。我的密码是 abc12345。谢谢"),
        &Context::default(),
    );
    let last = set.candidates.last().unwrap();
    assert_eq!(last.claim.text.expose(), "我对芒果过敏。 谢谢");
    assert_eq!(
        (last.claim.importance, last.ordinal),
        (Permille::new(100), 1)
    );
}

#[test]
fn a_structured_record_speaks_for_itself() {
    let mut record = turn(Role::Record, "Employment: full time");
    record.structured = Some(StructuredClaim {
        attribute: Some("employment_status".to_owned()),
        ..StructuredClaim::new(Kind::Fact, "160903007")
    });
    let set = extract(&record, &Context::default());
    assert_eq!(facts(&set), ["employment_status=160903007"]);
    assert_eq!(set.candidates.len(), 1);
    assert_eq!(set.candidates[0].claim.source.extractor, "structured");
    record.structured = Some(StructuredClaim {
        ends: true,
        ..StructuredClaim::new(Kind::Medication, "313782")
    });
    assert_eq!(
        facts(&extract(&record, &Context::default())),
        ["medication=313782 not change"]
    );
}

#[test]
fn a_structured_record_in_words_means_what_a_sentence_means() {
    for code in ["青霉素", "Penicillins", "盘尼西林"] {
        let mut record = turn(Role::Record, "对青霉素不过敏，该过敏记录已排除。");
        record.structured = Some(StructuredClaim {
            attribute: Some("allergy".to_owned()),
            ends: true,
            ..StructuredClaim::new(Kind::Allergy, code)
        });
        let set = extract(&record, &Context::default());
        assert_eq!(facts(&set), ["allergy=penicillin not change"], "{code}");
        let entities = &set.candidates[0].claim.entities;
        let names: Vec<String> = entities
            .iter()
            .map(|entity| format!("{} {}", entity.kind.code(), entity.name.expose()))
            .collect();
        assert_eq!(
            names,
            ["allergen penicillin", "drug penicillin", "drug antibiotic"]
        );
    }
}

#[test]
fn the_claim_reads_alone_and_the_quote_is_the_speakers_own() {
    let text = "我爸有糖尿病，在吃二甲双胍 ５００ｍｇ";
    let set = extract(&turn(Role::User, text), &Context::default());
    let drug = &set.candidates[1].claim;
    assert_eq!(drug.text.expose(), text);
    assert_eq!(
        drug.quote.as_ref().unwrap().expose(),
        "在吃二甲双胍 ５００ｍｇ"
    );
    assert_eq!(
        (drug.language.as_str(), drug.context_tags.as_slice()),
        ("zh", ["health".to_owned()].as_slice())
    );
}

#[test]
fn a_long_text_is_read_to_its_end() {
    for piece in [
        "词",
        "a",
        "我对花生过敏，",
        "i am allergic to nuts and ",
        "1",
        "。",
        "对",
    ] {
        let text = piece.repeat(60_000 / piece.len());
        let set = extract(&turn(Role::User, &text), &Context::default());
        assert!(set.failed.is_none() && set.rejects.len() <= 64);
    }
    let text = format!("{}我对芒果过敏。", "今天天气不错。".repeat(5_000));
    assert_eq!(
        facts(&extract(&turn(Role::User, &text), &Context::default())),
        ["allergy=mango"]
    );
}

fn any_text() -> impl Strategy<Value = String> {
    let words = proptest::sample::select(vec![
        "我",
        "我爸",
        "对",
        "花生",
        "过敏",
        "不",
        "没有",
        "了",
        "，",
        "。",
        "？",
        "吃",
        "停用",
        "二甲双胍",
        "5 mg",
        "改成",
        "从",
        "到",
        "明天",
        "上午九点",
        "记住",
        "：",
        "如果",
        " I ",
        "am ",
        "not ",
        "allergic to ",
        "peanuts ",
        "no longer ",
        "take ",
        "my dad ",
        "and ",
        "if ",
        ", ",
        ". ",
        "? ",
        "1米7",
        "血压",
        "150/95",
        "不对",
        "是",
        "诊断为",
        "史",
        "\u{3000}",
        "５",
        "İ",
        "ß",
        "\u{301}",
        "把",
        "这件事",
        "记下来",
        "[memory m]",
        "\n",
        "提醒我",
        "March 31 ",
        "2月31日",
        "9999年",
        "for 999 years ",
        "半",
    ]);
    proptest::collection::vec(words, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_panics_and_every_quote_is_found(text in prop_oneof![any_text(), ".{0,200}"]) {
        let context = after(&["我对花生过敏，在吃氨氯地平 5 mg"]);
        let set = extract(&turn(Role::User, &text), &context);
        for (i, candidate) in set.candidates.iter().enumerate() {
            prop_assert_eq!(candidate.ordinal as usize, i);
            if let Some(quote) = &candidate.claim.quote {
                prop_assert!(text.contains(quote.expose()), "quote of {} characters", quote.chars_count());
            }
            let claim = &candidate.claim;
            prop_assert!(claim.valid_to.is_none_or(|to| to >= claim.valid_from));
        }
        prop_assert_eq!(&extract(&turn(Role::User, &text), &context), &set);
    }
}
