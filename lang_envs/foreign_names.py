"""Names of the tasks of other packages; tests compare them with the packages."""

LEVELS = tuple(
    """
    GoToRedBallGrey GoToRedBall GoToRedBallNoDists GoToObj GoToObjS4 GoToObjS6-v1 GoToLocal GoToLocalS5N2
    GoToLocalS6N2 GoToLocalS6N3 GoToLocalS6N4 GoToLocalS7N4 GoToLocalS7N5 GoToLocalS8N2 GoToLocalS8N3 GoToLocalS8N4
    GoToLocalS8N5 GoToLocalS8N6 GoToLocalS8N7 GoTo GoToOpen GoToObjMaze GoToObjMazeOpen GoToObjMazeS4R2
    GoToObjMazeS4 GoToObjMazeS5 GoToObjMazeS6 GoToObjMazeS7 GoToImpUnlock GoToSeq GoToSeqS5R2 GoToRedBlueBall
    GoToDoor GoToObjDoor Open OpenRedDoor OpenDoor OpenDoorDebug OpenDoorColor OpenDoorLoc OpenTwoDoors
    OpenRedBlueDoors OpenRedBlueDoorsDebug OpenDoorsOrderN2 OpenDoorsOrderN4 OpenDoorsOrderN2Debug
    OpenDoorsOrderN4Debug Pickup UnblockPickup PickupLoc PickupDist PickupDistDebug PickupAbove PutNextLocal
    PutNextLocalS5N3 PutNextLocalS6N4 PutNextS4N1 PutNextS5N2 PutNextS5N1 PutNextS6N3 PutNextS7N4
    PutNextS5N2Carrying PutNextS6N3Carrying PutNextS7N4Carrying Unlock UnlockLocal UnlockLocalDist KeyInBox
    UnlockPickup UnlockPickupDist BlockedUnlockPickup UnlockToUnlock ActionObjDoor FindObjS5 FindObjS6 FindObjS7
    KeyCorridor KeyCorridorS3R1 KeyCorridorS3R2 KeyCorridorS3R3 KeyCorridorS4R3 KeyCorridorS5R3 KeyCorridorS6R3
    OneRoomS8 OneRoomS12 OneRoomS16 OneRoomS20 MoveTwoAcrossS5N2 MoveTwoAcrossS8N9 Synth SynthS5R2 SynthLoc SynthSeq
    MiniBossLevel BossLevel BossLevelNoUnlock
    """.split()  # noqa: SIM905 - 96 names
)
"""Levels of BabyAI, as MiniGrid 3.2 registers them, with a version where it is not 0."""

GAMES = tuple(
    """
    2048 Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake GuessTheNumber LightsOut LogicPuzzle
    Mastermind Minesweeper PegJump RushHour Secretary Set Slitherlink Sokoban Sudoku ThreeCardMonte TowerOfHanoi
    """.split()  # noqa: SIM905 - 22 names
)
"""Games of TextArena for one player that need no network."""
