"""Rules in Polish, Czech, Slovak, Russian, Ukrainian, Turkish, Indonesian and Vietnamese."""

from baton.safety.detector.language import Language
from baton.safety.detector.rules import Family, Rule

_LANGUAGES = (
    Language(
        "pl",
        drop="zignoruj*|ignoruj*|zapomnij*|pomiń*|nie_zważaj*|zlekceważ*|odrzuć*|zapomnieć|zignorować"
        "|nie_stosuj*|nie_przestrzegaj*|omiń*|obejdź|anuluj*|nadpisz*|nie_bierz_pod_uwagę",
        orders="instrukcj*|poleceni*|poleceń|wytyczn*|zasad|zasady|reguł*|rozkaz*|prompt*|nakaz*"
        "|wskazów*|dyrektyw*|ograniczeni*|komend*",
        earlier="poprzedni*|wcześniejsz*|powyższ*|wszystki*|wszelki*|dotychczasow*|swoje|swoich|twoje"
        "|twoich|pierwotn*|początkow*|systemow*|podane|otrzymane",
        show="pokaż*|wyświetl*|ujawnij*|powtórz*|wypisz*|podaj*|zdradź*|napisz|powiedz|wydrukuj*"
        "|przetłumacz*|udostępnij*",
        prompt="instrukcje_systemowe|swoje_instrukcje|polecenie_systemowe|monit_systemowy|początkowe_instrukcje",
        hide=(
            "(nie) ~1 (mów|informuj|wspominaj|ujawniaj|powiadamiaj|zdradzaj|ostrzegaj) ~5"
            " !(użytkownik*|nikomu|człowiek*|nikogo)",
            "(bez) ~1 (informowania|powiadamiania|wiedzy|zgody|pytania) ~2 !(użytkownik*)",
        ),
        now=(
            "!(jesteś|pan_jest) !(teraz|odtąd|od_teraz)",
            "!(od_teraz|odtąd|od_tej_chwili|od_tego_momentu) ~1 (jesteś|masz|odpowiadaj|działaj"
            "|będziesz|musisz|ignoruj|wykonuj|twoim)",
            "!(twoje|twoim|twoja) !(nowe|nowym|nowa|prawdziwe|prawdziwym|jedyne|jedynym) (zadanie"
            "|zadaniem|polecenie|poleceniem|misja|cel|celem|rola) ~1 (to|jest|będzie)",
        ),
    ),
    Language(
        "ru",
        drop="игнорируй*|проигнорируй*|игнорировать|проигнорировать|забудь*|забыть|не_обращай*"
        "|не_учитывай*|отбрось*|пренебреги*|отмени*|не_следуй*|не_выполняй*|не_соблюдай*|обойди*"
        "|нарушь*|перестань*_следовать|отвергни*|удали*",
        orders="инструкци*|указани*|команд*|правил*|распоряжени*|промпт*|приказ*|директив*|установк*"
        "|предписани*|ограничени*|подсказк*|требовани*",
        earlier="предыдущ*|прежн*|прошл*|вышеуказанн*|вышеизложенн*|вышеприведенн*|вышеперечисленн*"
        "|ранее|все|всё|всем|изначальн*|первоначальн*|исходн*|свои|своих|твои|твоих|ваши|ваших"
        "|системн*|выше|полученн*|данн*|любые",
        show="покажи*|показать|выведи*|вывести|раскрой*|раскрыть|повтори*|напечатай*|напиши*|скажи*"
        "|сообщи*|назови*|перескажи*|переведи*|выдай*|опубликуй*|процитируй*",
        prompt="системный_промпт|системные_инструкции|системную_инструкцию|системное_сообщение"
        "|свои_инструкции|твои_инструкции|исходные_инструкции|начальные_инструкции"
        "|системный_запрос",
        hide=(
            "(не) ~1 (говори*|сообщай*|рассказывай*|упоминай*|информируй*|раскрывай*|уведомляй*"
            "|показывай*|предупреждай*) ~5 !(пользовател*|никому|клиент*|человек*|людям)",
            "(без) ~1 (ведома|уведомления|согласия|разрешения|предупреждения) ~2 !(пользовател*|клиент*|человека)",
        ),
        now=(
            "!(теперь_ты|ты_теперь|теперь_вы|вы_теперь|отныне_ты|отныне_вы|с_этого_момента"
            "|с_этой_минуты|отныне) ~1 (ты|вы|отвеча*|должен|должны|действу*|являешься|будешь"
            "|игнорируй*|выполняй*|не|хакер|свободн*)",
            "!(твоя|ваша|твой|ваш) !(новая|новый|настоящая|истинная|единственная|реальная|новое) ~1"
            " (задача|миссия|инструкция|цель|роль|задание)",
            "!(новые|вот_твои_новые|вот_новые) !(инструкции|указания|команды) ~2 (для|от|такие|следующие|выполни*|ты)",
        ),
    ),
    Language(
        "uk",
        drop="ігноруй*|проігноруй*|забудь*|не_звертай*|відкинь*|знехтуй*|скасуй*|не_виконуй*|не_дотримуйся",
        orders="інструкці*|вказівк*|команд*|правил*|розпоряджен*|промпт*|наказ*|директив*|настанов*",
        earlier="попередн*|усі|всі|всіх|усіх|вищезазначен*|вищенаведен*|раніше|початков*|свої|твої|ваші|системн*",
        show="покажи*|виведи*|розкрий*|повтори*|надрукуй*|напиши*|скажи*",
        prompt="системний_промпт|системні_інструкції|свої_інструкції",
    ),
    Language(
        "cs",
        drop="ignoruj*|ignorujte|zapomeň*|nedbej*|pomiň*|přeskoč*|zanedbej*|ignorovat|zabudni*|neřiď_se|neriaď_sa",
        orders="instrukce|instrukcí|inštrukcie|inštrukcií|pokyny|pokynů|pokynov|příkaz*|príkaz*"
        "|pravidla|prompt*|směrnic*|nařízení",
        earlier="předchozí*|předcházející*|predchádzajúce*|predošlé|všechny|všetky|výše|vyššie|dřívější*"
        "|původní*|své|tvé|svoje|tvoje|uvedené",
        show="zobraz*|ukaž*|prozraď*|vypiš*|zopakuj*|napiš*|odhal*",
        prompt="systémový_prompt|systémové_instrukce|systémové_pokyny",
    ),
    Language(
        "id",
        drop="abaikan|lupakan|hiraukan|jangan_ikuti|kesampingkan|langgar",
        orders="instruksi|perintah|arahan|aturan|petunjuk|prompt|panduan|pedoman",
        earlier="sebelumnya|semua|seluruh|di_atas|terdahulu|awal|anda|sistem|yang_diberikan|segala",
        show="tampilkan|tunjukkan|cetak|ungkapkan|ulangi|beritahu|tuliskan|bocorkan",
        prompt="prompt_sistem|instruksi_sistem|instruksi_awal",
    ),
    Language(
        "vi",
        drop="bỏ_qua|quên|phớt_lờ|lờ_đi|không_tuân_theo|đừng_làm_theo|hủy_bỏ",
        orders="hướng_dẫn|chỉ_dẫn|chỉ_thị|lệnh|quy_tắc|yêu_cầu|mệnh_lệnh|prompt|lời_nhắc",
        earlier="trước_đó|trước_đây|trước|ở_trên|tất_cả|mọi|ban_đầu|của_bạn|bên_trên",
        show="hiển_thị|tiết_lộ|in_ra|cho_tôi_xem|lặp_lại|viết_ra|cho_tôi_biết",
        prompt="lời_nhắc_hệ_thống|hướng_dẫn_hệ_thống|chỉ_thị_hệ_thống",
    ),
)

# The verb comes last.
_TURKISH = Family(
    (
        Rule(
            "override.tr",
            6,
            (
                "(önceki|yukarıdaki|tüm|bütün|daha_önceki|mevcut|verilen|eski|ilk) ~3 (talimat*|komut*"
                "|yönerge*|kural*|emir*|emri|yönlendirme*|istem*|direktif*) ~2 !(yok_say*|görmezden_gel*"
                "|unut*|dikkate_alma*|göz_ardı_et*|iptal_et*|yoksay*|uyma)",
            ),
            squeezable=True,
            group="override",
        ),
        Rule(
            "disclosure.tr",
            4,
            (
                "!(sistem_istemini|sistem_komutunu|sistem_talimatlarını|sistem_promptunu"
                "|sistem_promptu*) ~3 (göster*|yaz*|açıkla*|tekrarla*|yazdır*|söyle*|paylaş*)",
            ),
        ),
    )
)

FURTHER = (*(language.family() for language in _LANGUAGES), _TURKISH)
