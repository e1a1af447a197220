// The program of kafkajs for members of groups: node member.js (its manners: ../members.py)
'use strict'

const readline = require('readline')
const { AssignerProtocol, Kafka, PartitionAssigners, logLevel } = require('kafkajs')
const { version } = require('kafkajs/package.json')

const { MemberAssignment, MemberMetadata } = AssignerProtocol
const POLL_MS = 100
const METADATA_MS = 1000
const REBALANCE_MS = 30_000
const KICKED_OUT = ['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION']

function say(words) {
  process.stdout.write(JSON.stringify(words) + '\n')
}

const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds))

class Member {
  constructor(asked) {
    this.asked = asked
    this.mayCommit = true
    this.isLeaving = false
    this.isRebalancing = true
    this.owned = []
    // Where to go on in each partition: kafkajs may still come with what it fetched before a rebalance.
    this.positions = {}
    const { bootstrap, member, group, assignor, session_ms: sessionTimeout } = asked
    const retry = { retries: 100, initialRetryTime: 50, maxRetryTime: 500 }
    const kafka = new Kafka({ clientId: member, brokers: [bootstrap], logLevel: logLevel.NOTHING, retry })
    this.consumer = kafka.consumer({
      groupId: group,
      partitionAssigners: [context => ASSIGNERS[assignor](context, asked)],
      sessionTimeout,
      heartbeatInterval: Math.min(sessionTimeout / 4, 300),
      rebalanceTimeout: REBALANCE_MS,
      maxWaitTimeInMs: POLL_MS,
      metadataMaxAge: METADATA_MS,
    })
    this.run().catch(error => this.say({ failed: error.stack }))
  }

  say(words) {
    say({ member: this.asked.member, ...words })
  }

  async run() {
    const { consumer, asked } = this
    const { CRASH, GROUP_JOIN, REBALANCING } = consumer.events
    consumer.on(REBALANCING, () => { this.isRebalancing = true })
    consumer.on(GROUP_JOIN, ({ payload }) => this.assigned(payload.memberAssignment[asked.topic] ?? []))
    consumer.on(CRASH, ({ payload }) => payload.restart || this.say({ failed: payload.error.stack }))
    await consumer.connect()
    await consumer.subscribe({ topics: [asked.topic], fromBeginning: true })
    await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: each => this.process(each) })
  }

  assigned(partitions) {
    this.isRebalancing = false
    this.owned = [...partitions].sort((one, other) => one - other)
    this.positions = Object.fromEntries(this.owned.map(partition => [partition, this.positions[partition] ?? 0]))
    this.say({ owns: this.owned })
  }

  async process({ batch, heartbeat, resolveOffset, commitOffsetsIfNecessary }) {
    const { topic, partition } = batch
    if (this.isRebalancing || !this.owned.includes(partition)) return
    const messages = batch.messages.filter(({ offset }) => Number(offset) >= this.positions[partition])
    if (messages.length === 0) return
    this.say({ processed: messages.map(({ offset, value }) => [partition, Number(offset), value.toString()]) })
    const offset = Number(messages[messages.length - 1].offset) + 1
    if (!this.mayCommit) this.say({ held: true })
    let alive = true
    while (!this.mayCommit && !this.isLeaving) {
      // If it is out of the group, the broker shall say so to its commit.
      alive = alive && (await heartbeat().then(() => true, () => false))
      await pause(10)
    }
    await this.commit(commitOffsetsIfNecessary, topic, partition, offset)
    this.positions[partition] = offset
    resolveOffset(String(offset - 1))
  }

  // A broker that is away comes back.
  async commit(commitOffsets, topic, partition, offset) {
    for (;;) {
      try {
        await commitOffsets({ topics: [{ topic, partitions: [{ partition, offset: String(offset) }] }] })
        this.say({ committed: { [partition]: offset } })
        return
      } catch (error) {
        const cause = error.cause ?? error
        if (KICKED_OUT.includes(cause.type) || cause.type === 'REBALANCE_IN_PROGRESS') {
          this.say({ refused: cause.type })
          delete this.positions[partition]
          this.isRebalancing = true
          throw error
        }
        await pause(50)
      }
    }
  }

  async leave() {
    this.isLeaving = true
    await this.consumer.disconnect()
    this.say({ left: true })
  }
}

function assigner(name, userData, share) {
  return ({ cluster }) => ({
    name,
    version: 0,
    protocol: ({ topics }) => ({ name, metadata: MemberMetadata.encode({ version: 0, topics, userData }) }),
    assign: async ({ members, topics: [topic] }) => {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId)
      const sorted = [...members].sort((one, other) => (one.memberId < other.memberId ? -1 : 1))
      const data = sorted.map(({ memberMetadata }) => MemberMetadata.decode(memberMetadata).userData)
      const shares = share(partitions.sort((one, other) => one - other), data)
      return sorted.map(({ memberId }, number) => ({
        memberId,
        memberAssignment: MemberAssignment.encode({ version: 0, assignment: { [topic]: shares[number] } }),
      }))
    },
  })
}

// Java's, which kafkajs does not have: the first few get one more.
function shareByRange(partitions, members) {
  const size = Math.floor(partitions.length / members.length)
  const extra = partitions.length % members.length
  const start = number => size * number + Math.min(number, extra)
  return members.map((_, number) => partitions.slice(start(number), start(number + 1)))
}

// Each partition to the one who then carries least for his weight.
function shareByWeight(partitions, members) {
  const weights = members.map(Number)
  const shares = members.map(() => [])
  for (const partition of partitions) {
    const loads = shares.map((share, number) => (share.length + 1) / weights[number])
    shares[loads.indexOf(Math.min(...loads))].push(partition)
  }
  return shares
}

const ASSIGNERS = {
  RoundRobinAssigner: context => PartitionAssigners.roundRobin(context),
  range: context => assigner('range', Buffer.alloc(0), shareByRange)(context),
  'by-weight': (context, { weight }) => assigner('by-weight', Buffer.from(String(weight)), shareByWeight)(context),
}

async function main() {
  const members = {}
  say({ version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { verb, ...asked } = JSON.parse(line)
    switch (verb) {
      case 'join':
        members[asked.member] = new Member(asked)
        break
      case 'hold':
      case 'release':
        members[asked.member].mayCommit = verb === 'release'
        break
      case 'leave':
        members[asked.member].leave().catch(error => members[asked.member].say({ failed: error.stack }))
    }
  }
  process.exit(0)
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
