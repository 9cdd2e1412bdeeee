"""Rules in German, French, Spanish, Italian, Portuguese, Dutch, and for the North: Swedish, Danish, Norwegian."""

from baton.safety.detector.language import Language

_LANGUAGES = (
    Language(
        "de",
        drop="ignorier*|ignoriert|vergiss|vergesst|vergessen_sie|missacht*|missachte|überspring*"
        "|verwirf|verwerfen_sie|übergeh*|befolge_nicht|beachte_nicht|beachten_sie_nicht|umgeh*"
        "|überschreib*|lass|lasse|lassen_sie|setz*|vergessen|halte_dich_nicht_an",
        orders="anweisung*|instruktion*|befehl*|vorgabe*|regeln|anordnung*|prompt*|richtlinie*"
        "|aufforderung*|systemanweisung*|vorschrift*|direktive*|weisung*|leitlinie*"
        "|aufgabenstellung*|sicherheitsregeln",
        earlier="vorherig*|vorherigen|vorig*|vorangegangen*|vorangehend*|bisherig*|obig*|oben|früher*"
        "|alle|aller|allen|sämtlich*|bestehend*|deine|deinen|deiner|ihre|ihren|ursprünglich*"
        "|vorausgehend*|zuvor|davor|eure",
        show="zeig*|gib|geben_sie|verrat*|nenn*|wiederhol*|druck*|offenbar*|enthüll*|schreib*|sag"
        "|lies|veröffentlich*|übersetz*",
        prompt="systemanweisung*|systemanweisungen|ursprünglichen_anweisungen|deine_anweisungen|internen_anweisungen",
        hide=(
            "(sag*|erzähl*|verrat*|teil*|informier*|erwähn*|benachrichtig*|melde*|zeig*) ~4 !(nutzer"
            "|benutzer|anwender|kunden|niemandem|menschen) ~4 (nicht|nichts|kein|davon|keinesfalls)",
            "(ohne) ~2 !(nutzer|benutzer|anwender) ~2 zu ~2 (informieren|fragen|sagen|benachrichtigen)",
        ),
        now=(
            "!(du_bist|sie_sind) !(jetzt|nun|ab_sofort|ab_jetzt|von_nun_an|nicht_mehr)",
            "!(ab_jetzt|ab_sofort|von_nun_an|von_jetzt_an) ~1 (du|sie|bist|antwort*|befolg*|folg*"
            "|ignorier*|handel*|wirst|sollst|musst)",
            "!(deine|ihre) !(neue|eigentliche|wahre|wirkliche|einzige) (aufgabe|anweisung|mission"
            "|rolle) (ist|lautet|besteht)",
            "!neue !(anweisung|anweisungen|instruktion*|befehle) ~2 (für|folge|befolge|lautet|lauten|vom|ab)",
        ),
        all=(
            "!(ignorier*|vergiss|vergessen_sie) ~1 (alles|alle) ~4 (bisher*|vorher*|zuvor|oben"
            "|gesagt*|davor|besprochen|obige|stand)",
        ),
        free=(
            "(du|ki|assistent|modell) ~3 (keine|keinerlei|ohne) ~1 !(regeln|beschränkungen"
            "|einschränkungen|richtlinien|filter|zensur)",
            "(antwort*|handel*|agier*) ~3 (ohne|frei_von) ~2 !(beschränkungen|einschränkungen"
            "|richtlinien|filter|zensur)",
            "(sicherheitsrichtlinien|richtlinien|regeln) ~2 !(hier_nicht|nicht_mehr) ~1 (gelten|zutreffen)",
            "du_bist ~1 !(uneingeschränkt|unzensiert|ungefiltert)",
        ),
    ),
    Language(
        "fr",
        drop="ignor*|oubli*|néglig*|n'obéis_plus|n'obéissez_plus|n'obéis_pas|ne_tenez_pas_compte"
        "|ne_tiens_pas_compte|ne_tenez_aucun_compte|fais_abstraction|faites_abstraction"
        "|faire_abstraction|passe_outre|passez_outre|désobéi*|ne_suis_pas|ne_suivez_pas"
        "|ne_suis_plus|ne_suivez_plus|écarte*|contourne*|laisse*_tomber|remplace*|annule*",
        orders="instruction*|consigne*|directive*|règle*|ordres|prompt|prompts|indication*|invite*"
        "|contraintes|restrictions|recommandations",
        earlier="précédent*|antérieur*|ci-dessus|initial*|initiale*|toutes|tous|tes|vos|système|avant"
        "|données|donné|reçu*|préalable*|original*|existant*|passées|plus_haut",
        show="montre*|affiche*|révèle*|révélez|donne*|imprime*|répète*|répétez|divulgue*|dis|dites"
        "|écris|écrivez|communique*|traduis|traduisez|fournis*|fournir",
        prompt="invite_système|instructions_système|instructions_initiales|consignes_initiales"
        "|instructions_internes|tes_instructions|vos_instructions",
        hide=(
            "(ne_dis|ne_dites|ne_mentionne|ne_mentionnez|ne_le_dis|n'informe|n'informez|n'en_parle"
            "|n'en_parlez|ne_révèle|ne_révélez|ne_préviens|ne_prévenez|ne_signale|ne_signalez) ~5"
            " !(utilisateur*|l'utilisateur|personne|humain|l'humain)",
            "(sans) ~1 (informer|prévenir|le_dire_à|avertir|en_parler_à|demander_à) ~2"
            " !(utilisateur*|l'utilisateur|personne)",
        ),
        now=(
            "!(tu_es|vous_êtes) !(maintenant|désormais|à_présent|dorénavant)",
            "!(à_partir_de_maintenant|dorénavant|désormais) ~1 (tu|vous|réponds|répondez|ignore*"
            "|agis|agissez|suis|suivez|obéis)",
            "!(ta|votre) !(nouvelle|véritable|vraie|seule|unique) ~1 (tâche|mission|instruction"
            "|consigne|objectif|rôle) ~1 (est|consiste)",
            "!(nouvelles|voici_tes_nouvelles|voici_vos_nouvelles) !(instructions|consignes) ~1 (sont"
            "|suivantes|du|pour|voici)",
        ),
        all=("!(ignore*|oublie*) ~1 tout ~4 (précède|dit|avant|précédemment|dessus|auparavant|écrit)",),
        free=(
            "(réponds|répondez|répondre|agis|ia|assistant|modèle) ~4 sans ~1 !(restriction"
            "|restrictions|filtre|filtres|censure|limites)",
            "(tu|vous) ~2 (aucune|pas_de|plus_de|aucun) ~1 !(restriction|restrictions|règle|règles"
            "|filtre|filtres|limite|limites)",
            "(règles|consignes) ~3 !(ne_s'appliquent_pas|ne_s'appliquent_plus)",
        ),
    ),
    Language(
        "es",
        drop="ignor*|olvid*|descart*|omit*|haz_caso_omiso|haga_caso_omiso|hacer_caso_omiso"
        "|no_hagas_caso|no_haga_caso|desatiend*|pasa_por_alto|pase_por_alto|no_sigas|no_siga"
        "|desobedec*|desobedezc*|elude|evita|anul*|sobrescrib*|prescinde*|deja_de_seguir"
        "|no_tengas_en_cuenta|no_tenga_en_cuenta",
        orders="instrucci*|instruccion*|indicacion*|órdenes|reglas|directric*|directiva*|comandos"
        "|prompt|prompts|mandatos|normas|restricciones|pautas|consignas",
        earlier="anterior*|previa|previas|previo|previos|precedent*|de_arriba|arriba|inicial*|original*"
        "|sistema|todas|todos|tus|sus|antes|recibid*|existentes|dadas",
        show="muestra*|muéstra*|muéstrame|muestre|imprim*|revel*|repit*|repet*|dime|dame|divulg*"
        "|escrib*|enséñame|comparte*|traduc*|proporciona*",
        prompt="instrucciones_del_sistema|instrucciones_iniciales|instrucciones_internas"
        "|tus_instrucciones|sus_instrucciones|instrucciones_originales",
        hide=(
            "(no) ~1 (digas|le_digas|diga|menciones|mencione|informes|informe|reveles|revele|avises"
            "|avise|notifiques|notifique|cuentes|cuente) ~5 !(usuario|usuaria|nadie|cliente|humano"
            "|persona)",
            "(sin) ~1 (informar|avisar|decir*|notificar|preguntar|que) ~3 !(usuario|nadie|cliente|humano)",
        ),
        now=(
            "!(ahora_eres|ahora_es|eres_ahora|a_partir_de_ahora|de_ahora_en_adelante|desde_ahora"
            "|a_partir_de_este_momento) ~1 (eres|tu|tú|un|una|usted|responde*|debes|actúa*|vas"
            "|ignora*|obedece*|serás|sólo|solo|el|la)",
            "!(tu|su) !(nueva|nuevo|verdadera|verdadero|única|único|real) ~1 (tarea|misión"
            "|instrucción|objetivo|rol|función) ~1 (es|será|consiste)",
            "!(nuevas|estas_son_tus_nuevas) !(instrucciones|órdenes) ~1 (son|para|del|a_seguir|siguientes)",
        ),
        all=("!(ignora*|olvida*) ~1 todo ~4 (anterior|antes|dicho|previo|arriba|dije)",),
        free=(
            "(responde*|responder|contesta*|actúa*|modo|ia|asistente|modelo|desarrollador) ~4 sin ~1"
            " !(restricciones|restricción|filtro|filtros|censura|límites)",
            "no ~1 tienes ~1 !(restricciones|reglas|filtros|límites)",
            "(reglas|normas|pautas) ~3 !(no_aplican|no_se_aplican|ya_no_aplican)",
        ),
    ),
    Language(
        "it",
        drop="ignor*|dimentic*|trascur*|tralasci*|non_considerare|non_seguire|non_seguite"
        "|non_tenere_conto|non_tenete_conto|lascia_perdere|disattend*|scord*|scart*|elud*|aggir*"
        "|disobbedi*|annull*|sovrascriv*",
        orders="istruzion*|indicazion*|ordini|regole|direttiv*|comandi|prompt|prompts|linee_guida"
        "|restrizioni|disposizioni|consegne|vincoli",
        earlier="precedent*|anterior*|sopra|inizial*|original*|sistema|tutte|tutti|tue|tuoi|vostre|prima"
        "|ricevut*|esistenti|date|qui_sopra",
        show="mostra*|mostrami|stampa*|rivela*|ripeti*|ripetere|dimmi|dammi|divulga*|scrivi*"
        "|condividi*|visualizza*|traduci*|fornisci*|elenca*",
        prompt="istruzioni_di_sistema|istruzioni_iniziali|istruzioni_interne|tue_istruzioni|istruzioni_originali",
        hide=(
            "(non) ~1 (dire|dirlo|menzionare|informare|rivelare|avvisare|notificare|parlarne|dica"
            "|segnalare) ~5 !(utente|l'utente|all'utente|nessuno|cliente|umano)",
            "(senza) ~1 (informare|avvisare|dire*|dirlo|notificare|chiedere) ~3 !(utente|l'utente"
            "|all'utente|nessuno|cliente)",
        ),
        now=(
            "!(ora_sei|adesso_sei|d'ora_in_poi|da_ora_in_poi|da_adesso_in_poi|da_questo_momento) ~1"
            " (sei|un|una|tu|rispondi*|devi|agisci*|ignora*|segui|obbedisci*|sarai|solo)",
            "!(il_tuo|la_tua) !(nuovo|nuova|vero|vera|unico|unica|reale) ~1 (compito|missione"
            "|istruzione|obiettivo|ruolo|scopo) ~1 (è|e|sarà|consiste)",
            "!(nuove|ecco_le_tue_nuove) istruzioni ~1 (sono|per|dal|da_seguire|seguenti)",
        ),
        all=("!(ignora*|dimentica*) ~1 tutto ~4 (precedente|prima|detto|sopra|scritto)",),
        free=(
            "(rispondi*|rispondere|agisci*|ia|assistente|modello) ~4 senza ~1 !(restrizioni|filtri"
            "|filtro|censura|limiti|limitazioni)",
            "non ~1 hai ~1 !(restrizioni|regole|filtri|limiti)",
            "(regole|linee_guida) ~3 !(non_valgono|non_si_applicano)",
        ),
    ),
    Language(
        "pt",
        drop="ignor*|esqueça*|esquece*|esqueçam|esquecer|desconsider*|desprez*|descart*|não_siga*"
        "|não_sigas|não_considere|não_obedeça|desobedeça|pule|omita|contorn*|anul*|sobrescrev*"
        "|deixe_de_seguir|deixa_de_seguir|não_leve_em_conta",
        orders="instruç*|instrucoes|orientaç*|ordens|regras|diretriz*|diretiv*|comandos|prompt|prompts"
        "|restrições|normas|diretrizes|indicações|mandamentos",
        earlier="anterior*|prévia*|prévio*|acima|precedent*|inicia*|origina*|sistema|todas|todos|suas"
        "|seus|tuas|teus|antes|recebid*|existentes|dadas",
        show="mostr*|imprim*|revel*|repit*|repet*|diga|diz|dê|dá-me|divulg*|escrev*|exib*|compartilh*"
        "|traduz*|forneç*|liste",
        prompt="instruções_do_sistema|instruções_iniciais|instruções_internas|suas_instruções"
        "|tuas_instruções|instruções_originais",
        hide=(
            "(não) ~1 (diga|digas|conte|contes|mencione|informe|revele|avise|notifique|fale|alerte"
            "|mostre) ~5 !(usuário|utilizador|ninguém|cliente|humano|pessoa)",
            "(sem) ~1 (informar|avisar|dizer|notificar|perguntar|contar|que) ~3 !(usuário|utilizador"
            "|ninguém|cliente|humano)",
        ),
        now=(
            "!(agora_você_é|você_agora_é|você_é_agora|a_partir_de_agora|de_agora_em_diante"
            "|daqui_em_diante|tu_és_agora) ~1 (você|um|uma|tu|responda*|deve|aja|ignore*|obedeça*"
            "|será|siga|só|apenas|o|a)",
            "!(sua|tua|seu|teu) !(nova|novo|verdadeira|verdadeiro|única|único|real) ~1 (tarefa"
            "|missão|instrução|objetivo|papel|função) ~1 (é|e|será|consiste)",
            "!(novas|aqui_estão_suas_novas) !(instruções|ordens) ~1 (são|para|do|a_seguir|seguintes)",
        ),
        all=("!(ignore*|esqueça*|esquece*) ~1 tudo ~4 (anterior|antes|dito|acima|disse|escrito)",),
        free=(
            "(responda*|responder|aja|ia|assistente|modelo) ~4 sem ~1 !(restrições|filtros|filtro|censura|limites)",
            "você ~1 não ~1 tem ~1 !(restrições|regras|filtros|limites)",
        ),
    ),
    Language(
        "nl",
        drop="negeer*|negeren|vergeet|vergeten|sla|laat|omzeil*|verwerp|volg_niet|overschrijf*"
        "|houd_geen_rekening_met|schuif|trek_je_niets_aan_van",
        orders="instructie*|opdracht*|regels|aanwijzing*|richtlijn*|bevel*|prompt|prompts|commando*"
        "|voorschrift*|systeeminstructies|beperkingen|orders",
        earlier="vorige|voorgaande|voorafgaande|eerdere|bovenstaande|bovengenoemde|alle|al"
        "|oorspronkelijke|je|jouw|uw|bestaande|gegeven|hierboven|hiervoor",
        show="toon|laat_zien|geef|onthul*|herhaal*|druk|print|schrijf|vertel*|openbaar|deel|vertaal*",
        prompt="systeeminstructies|jouw_instructies|je_instructies|interne_instructies|oorspronkelijke_instructies",
        hide=(
            "(vertel*|zeg|meld|informeer|vermeld|waarschuw|laat) ~4 !(gebruiker|niemand|klant|mens)"
            " ~4 (niet|niets|hierover|niks|geen)",
            "(zonder) ~3 !(gebruiker|klant|iemand) ~3 (te_informeren|te_vertellen|te_vragen"
            "|in_te_lichten|te_waarschuwen)",
        ),
        now=(
            "!(je_bent|jij_bent|u_bent) !(nu|voortaan|vanaf_nu|niet_langer)",
            "!(vanaf_nu|voortaan|van_nu_af_aan) ~1 (ben|moet|zul|antwoord*|volg|negeer|handel|je|jij|u)",
            "!(je|jouw|uw) !(nieuwe|echte|werkelijke|enige|ware) (taak|opdracht|instructie|missie|rol|doel) (is|luidt)",
        ),
    ),
    Language(
        "sv",
        drop="ignorer*|glöm|bortse_från|strunta_i|åsidosätt|följ_inte|ignorér|glem|se_bort_fra"
        "|tilsidesæt|følg_ikke|overse",
        orders="instruktion*|instruktioner|anvisning*|regler|order|prompt*|riktlinj*|direktiv*"
        "|kommando*|instruks*|retningslinje*|ordre|ordrer",
        earlier="tidligere|tidigare|föregående|ovanstående|alla|dina|alle|foregående|forrige|ovenstående"
        "|ovennævnte|dine|ursprungliga|oprindelige",
        show="visa|vis|avslöja|skriv|upprepa|gentag|gjenta|avslør|fortæl",
        prompt="systeminstruktioner|systemprompten|dina_instruktioner",
    ),
)

EUROPEAN = (*(language.family() for language in _LANGUAGES),)
