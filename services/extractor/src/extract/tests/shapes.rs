//! In how many ways people say the same: each sentence written for these tests.

use super::*;

fn after_question(role: Role, question: &str) -> Context {
    Context {
        recent: vec![Said {
            role,
            text: Text::from(question),
            is_memory_write: false,
            came: None,
        }],
        ..Context::default()
    }
}

#[test]
fn what_is_had_needs_no_verb_where_nothing_else_is_said() {
    check("两年前带状疱疹，疼了一个月", &["condition=shingles"]);
    check("我姨妈青光眼", &["other(maternal aunt) condition=glaucoma"]);
    check("我要去查糖尿病", &[]);
    check("说糖尿病要少吃糖", &[]);
}

#[test]
fn what_belongs_to_somebody_is_had_by_them() {
    check("My rosacea is back", &["condition=rosacea"]);
    check("I use a cream for my eczema", &["condition=eczema"]);
    check(
        "I put up with my sister's migraines",
        &["other(sister) condition=migraine"],
    );
    check("我的痛风又犯了", &["condition=gout"]);
}

#[test]
fn a_finding_is_told_by_those_who_found_it() {
    check(
        "They found gallstones last spring",
        &["condition=gallstones"],
    );
    check("The scan showed emphysema", &["condition=emphysema"]);
    check(
        "They found a fibroadenoma in my sister",
        &["other(sister) condition=fibroadenoma"],
    );
    check(
        "My grandfather died of lung cancer",
        &["other(grandfather) condition=lung cancer"],
    );
    check("大夫说这是丹毒", &["condition=erysipelas"]);
}

#[test]
fn a_denied_adjective_denies() {
    check("I'm not asthmatic", &["condition=asthma not"]);
    check(
        "My brother is hypothyroid",
        &["other(brother) condition=hypothyroidism"],
    );
}

#[test]
fn a_drug_may_be_told_by_what_follows_it() {
    check("氯雷他定我一直在吃", &["medication=loratadine"]);
    check("厄贝沙坦没断过", &["medication=irbesartan"]);
    check(
        "家里人都知道，布洛芬是我爸在吃",
        &["father medication=ibuprofen"],
    );
    check("Topiramate works for me", &["medication=topiramate"]);
    check("医生给的普瑞巴林", &["medication=pregabalin"]);
}

#[test]
fn a_drug_that_belongs_to_somebody_is_taken_by_them() {
    check("I need a refill of my losartan", &["medication=losartan"]);
    check("His donepezil is running out", &[]);
    check(
        "My uncle lives here. His donepezil is running out.",
        &["other(uncle) medication=donepezil"],
    );
    check(
        "I feed Grandma her memantine",
        &["other(grandmother) medication=memantine"],
    );
    check("我的是氨氯地平", &["medication=amlodipine"]);
    // No drug that is taken: a level, a resistance, an announcement.
    check("My insulin resistance bothers me", &[]);
    check("It's metformin that everybody talks about", &[]);
}

#[test]
fn a_reaction_is_no_certainty_and_has_its_person() {
    for (text, expected) in [
        (
            "Walnuts give my brother hives",
            "other(brother) allergy=walnut",
        ),
        ("Pineapple makes my tongue tingle", "allergy=pineapple"),
        ("一吃螃蟹就浑身起疹子", "allergy=crab"),
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert_eq!(facts(&set), [expected], "{text}");
        assert!(
            set.candidates[0].claim.confidence < Permille::new(850),
            "{text}"
        );
    }
    check("Homework makes me itch", &[]);
}

#[test]
fn a_bare_allergy_is_to_what_was_just_named() {
    check(
        "我用过好几次头孢克肟，从来不过敏",
        &["allergy=cefixime not"],
    );
    check("Kiwi is off the menu, I'm allergic", &["allergy=kiwi"]);
    check("Kiwi and mango are off the menu, I'm allergic", &[]);
}

#[test]
fn an_echo_takes_the_fact_from_its_neighbour() {
    let set = extract(
        &turn(Role::User, "My dad has gout and so do I"),
        &Context::default(),
    );
    // Nobody could read "so do I" later.
    let text = set.candidates[1].claim.text.expose();
    assert_eq!(text, "My dad has gout and so do I");
    check(
        "My dad has gout and so do I",
        &["father condition=gout", "condition=gout"],
    );
    check(
        "My aunt has asthma but I'm not",
        &["other(aunt) condition=asthma", "condition=asthma not"],
    );
    check(
        "我舅舅没得过水痘，我倒是得过",
        &[
            "other(maternal uncle) condition=chickenpox not",
            "condition=chickenpox",
        ],
    );
    check(
        "My mother had shingles, but I was checked and don't have it",
        &[
            "mother condition=history of shingles",
            "condition=history of shingles not",
        ],
    );
}

#[test]
fn what_was_never_done_is_kept_and_what_was_not_done_once_is_not() {
    check(
        "I've never had a bronchoscopy",
        &["examination=bronchoscopy not"],
    );
    check("我没做过肠镜", &["examination=colonoscopy not"]);
    check("I didn't have the colonoscopy last week", &[]);
    check("我没做过手术", &[]);
}

#[test]
fn quoted_words_are_those_of_whom_they_quote() {
    check(
        "我姑姑说：“我有类风湿关节炎。”",
        &["other(aunt) condition=rheumatoid arthritis"],
    );
    check(
        "My husband told the dentist, \"I'm allergic to latex.\"",
        &["spouse allergy=latex"],
    );
    // Nobody in particular, a question, and somebody else's words about somebody else.
    check("A voice said, \"I have gout.\"", &[]);
    check("My mother asked, \"Do I have gout?\"", &[]);
    check("我爸说：“我妈有痛风。”", &[]);
    let set = extract(
        &turn(Role::User, "我姑姑说：“我有类风湿关节炎。”"),
        &Context::default(),
    );
    let quote = set.candidates[0].claim.quote.clone().unwrap();
    assert!("我姑姑说：“我有类风湿关节炎。”".contains(quote.expose()));
}

#[test]
fn an_answer_is_read_with_its_question() {
    for (question, answer, expected) in [
        (
            "Do you have any allergies?",
            "Penicillin.",
            "allergy=penicillin",
        ),
        ("有没有什么过敏？", "青霉素。", "allergy=penicillin"),
        ("Any medical problems?", "Just asthma.", "condition=asthma"),
        (
            "平时在吃什么药？",
            "二甲双胍，每天两次。",
            "medication=metformin twice_daily",
        ),
        ("Are you allergic to latex?", "No.", "allergy=latex not"),
        ("你对花生过敏吗？", "对。", "allergy=peanut"),
        ("有高血压吗？", "没有。", "condition=hypertension not"),
        ("Do you smoke?", "No, never.", "smoking_status=non_smoker"),
        (
            "Has anyone in your family had glaucoma?",
            "My father.",
            "father condition=glaucoma",
        ),
        ("Any food allergies?", "None.", "allergy=food not"),
    ] {
        for role in [Role::Clinician, Role::Assistant] {
            let set = extract(&turn(Role::User, answer), &after_question(role, question));
            assert_eq!(facts(&set), [expected], "{question} {answer}");
            let quote = set.candidates[0].claim.quote.clone().unwrap();
            assert!(answer.contains(quote.expose()), "{question} {answer}");
        }
    }
}

#[test]
fn an_answer_to_another_question_says_nothing() {
    for (question, answer) in [
        ("Should I stop the aspirin?", "Yes."),
        ("Do you have diabetes or gout?", "Yes."),
        ("没有过敏吧？", "对。"),
        ("Do you have any allergies?", "Maybe penicillin."),
        ("你妈妈还好吗？", "青霉素。"),
    ] {
        check_in(answer, &after_question(Role::Clinician, question), &[]);
    }
    // The user's own question is answered by nobody.
    check_in("Penicillin.", &after(&["Do you have any allergies?"]), &[]);
    // Only the next message answers.
    let mut context = after_question(Role::Clinician, "Are you allergic to latex?");
    context.recent.extend(after(&["I am tired."]).recent);
    check_in("Yes.", &context, &[]);
}

#[test]
fn the_words_of_a_question_are_not_copied_into_an_answer() {
    let question = "Do you have any trouble such as sugar diabetes?";
    let set = extract(
        &turn(Role::User, "No."),
        &after_question(Role::Clinician, question),
    );
    for one in set
        .candidates
        .iter()
        .filter(|c| c.claim.kind != Kind::Episode)
    {
        assert_eq!(one.claim.text.expose(), "I don't have diabetes");
    }
    assert_eq!(facts(&set), ["condition=diabetes not"]);
}
